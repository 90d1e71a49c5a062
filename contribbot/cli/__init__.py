"""The command line: modules that read options, call the other packages and print the results."""
