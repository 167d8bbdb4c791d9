"""Facts as people read them, in text, Markdown and HTML: below the command line and the page, which both show them."""
