"""The navigation task: a disc robot with a lidar drives through unknown rooms to a goal."""
