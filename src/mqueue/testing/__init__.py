"""What users and our own tests need to test without sleeping."""
