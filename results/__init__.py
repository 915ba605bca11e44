"""The measurements, with one JSON file per question, and the code that writes them into the site's pages."""
