"""Starting jobs: one contract, one module per launcher."""
