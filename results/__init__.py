"""The measurements, one JSON file per question, and the code that turns them into the site's pages."""
