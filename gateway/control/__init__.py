"""The control plane: reads what the data plane recorded, and changes its policy on evidence."""
