"""Recording: the write-ahead log and its shipping to MLflow."""
