"""Arrays and programs as HTML, for notebooks: text and inline SVG, in the colours of the page, without scripts."""
