"""The Markdown of reports in HTML, with everything else escaped."""


def to_html(text: str) -> str:
    """Return Markdown with tables as HTML; of HTML in it only line breaks are kept.

    Headings are two levels lower, below the page's own.

    Examples
    --------
    >>> print(to_html("# A *table*<br>of <b>"))
    <h3>A <em>table</em><br>of &lt;b&gt;</h3>
    <BLANKLINE>
    """
    from markdown_it import MarkdownIt

    reader = MarkdownIt("commonmark", {"html": False}).enable("table")
    tokens = reader.parse(text)
    for token in tokens:
        if token.type in ("heading_open", "heading_close"):
            token.tag = f"h{min(6, int(token.tag[1]) + 2)}"
    html: str = reader.renderer.render(tokens, reader.options, {})
    return html.replace("&lt;br&gt;", "<br>")
