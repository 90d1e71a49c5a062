"""The stages of a verification, one file each, in the order of `pipeline.STAGES`."""
