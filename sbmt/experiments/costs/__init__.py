"""What the paper's models cost with each attention: operations and memory side by side (``sbmt cost``)."""
