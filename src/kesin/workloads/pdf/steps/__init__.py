"""What is done with a PDF after it is printed: the steps of `then`."""
