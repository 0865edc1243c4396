"""Files that people launch training with, read and written: one neutral run on our side, one module per format."""
