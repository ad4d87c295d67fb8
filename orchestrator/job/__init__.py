"""One training job: reads a trial's folder, trains, writes files only."""
