"""What was measured, one JSON file per question, and what turns it into the site's pages."""
