"""The stages of a verification, one file each; `pipeline.STAGES` is their order."""
