"""Plans of changes to a checkpoint. They read; only the journal writes."""
