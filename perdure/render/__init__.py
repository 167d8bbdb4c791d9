"""Facts as people read them, in text, Markdown and HTML; the command line and the page both show them."""
