"""Git object stores: one bare repository per upstream, never with a work tree."""
