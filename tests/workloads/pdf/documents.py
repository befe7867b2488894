"""Documents to print, and functions to inspect the PDFs."""

import base64

import pypdfium2

from tests.workloads.pdf.listener import PIXEL

PICTURE = "data:image/png;base64," + base64.b64encode(PIXEL).decode()
TURKISH = "Fatura: ğ Ğ ı İ ş Ş ç ö ü 1.234,56 ₺"


def page(body: str, head: str = "") -> str:
    return (
        f'<!doctype html><html lang="tr"><head><meta charset="utf-8"><title>Belge</title>{head}'
        f"</head><body>{body}</body></html>"
    )


def invoice(rows: int = 15) -> str:
    lines = "".join(f"<tr><td>{row}</td><td>Ürün {row}, kutu</td><td>1.234,56 ₺</td></tr>" for row in range(rows))
    style = "<style>td { border: 1px solid #888; padding: 4px } h1 { color: #036 }</style>"
    return page(f"<h1>{TURKISH}</h1><img src='{PICTURE}'><table>{lines}</table>", style)


def text(pdf: bytes) -> str:
    document = pypdfium2.PdfDocument(pdf)
    try:
        return "\n".join(leaf.get_textpage().get_text_bounded() for leaf in document)
    finally:
        document.close()


def sizes_mm(pdf: bytes) -> list[tuple[int, int]]:
    document = pypdfium2.PdfDocument(pdf)
    try:
        return [(round(leaf.get_width() / 72 * 25.4), round(leaf.get_height() / 72 * 25.4)) for leaf in document]
    finally:
        document.close()


def red_pixels(pdf: bytes) -> int:
    """Count the red pixels of the first page."""
    document = pypdfium2.PdfDocument(pdf)
    try:
        bitmap = document[0].render(scale=0.5, rev_byteorder=True)
        data, step = bytes(bitmap.buffer), bitmap.n_channels
        points = (data[at : at + 3] for at in range(0, len(data), step))
        return sum(point == b"\xff\x00\x00" for point in points)
    finally:
        document.close()


def every_fetch(url: str) -> str:
    """A document that requests resources in every way that HTML and CSS offer."""
    css = f"""
      @import url("{url}/import.css"); @import "{url}/import-plain.css";
      @font-face {{ font-family: F; src: url("{url}/font.woff2") }}
      body {{ font-family: F; background: url({url}/background.png) }}
      body {{ cursor: url({url}/cursor.png), auto }}
      .a {{ border-image: url({url}/border.png) 1; list-style-image: url({url}/list.png) }}
      .a::before {{ content: url({url}/content.png) }}
      .b {{ mask-image: url({url}/mask.png); filter: url({url}/filter.svg#f) }}
      .c {{ background-image: image-set(url({url}/set.png) 1x); width: 9px; height: 9px }}
      .d {{ shape-outside: url({url}/shape.png); float: left; clip-path: url({url}/clip.svg#c) }}
      @media print {{ .e {{ background: url({url}/print.png) }} }}
    """
    head = f"""
      <link rel="stylesheet" href="{url}/style.css"><link rel="icon" href="{url}/icon.ico">
      <link rel="preload" as="image" href="{url}/preload.png">
      <link rel="prefetch" href="{url}/prefetch"><link rel="modulepreload" href="{url}/module.js">
      <link rel="prerender" href="{url}/prerender"><link rel="manifest" href="{url}/manifest">
      <link rel="alternate stylesheet" href="{url}/alternate.css" title="x">
      <link rel="apple-touch-icon" href="{url}/touch.png">
      <script src="{url}/script.js"></script><style>{css}</style>
    """
    body = f"""
      <div class="a">a</div><ul class="a"><li>x</ul><div class="b">b</div><div class="c">c</div>
      <div class="d">d</div><div class="e">e</div>
      <img src="{url}/img.png"><img srcset="{url}/srcset.png 1x">
      <img loading=lazy src="{url}/lazy.png"><img src="{url.replace("http:", "HTTP:")}/upper.png">
      <img src="{url.replace("http:", "")}/bare.png">
      <img src="{url.replace("127.0.0.1", "localhost")}/localhost.png">
      <img src="{url.replace("127.0.0.1", "2130706433")}/number.png">
      <img src="{url.replace("127.0.0.1", "[::ffff:127.0.0.1]")}/mapped.png">
      <picture><source srcset="{url}/source.png"><img></picture>
      <iframe src="{url}/iframe"></iframe><iframe srcdoc='<img src="{url}/srcdoc.png">'></iframe>
      <object data="{url}/object"></object><embed src="{url}/embed">
      <video src="{url}/video.mp4" poster="{url}/poster.png" autoplay preload=auto></video>
      <audio src="{url}/audio.mp3" preload=auto autoplay></audio>
      <video autoplay><track default src="{url}/track.vtt"></video>
      <input type=image src="{url}/input.png"><table background="{url}/table.png"><tr><td>t</table>
      <svg width=9 height=9><image href="{url}/svg-image.png" width=9 height=9 />
        <use href="{url}/use.svg#x" /><feImage href="{url}/feimage.png" /></svg>
      <form action="{url}/form"><button>x</button></form><a ping="{url}/ping" href="{url}/a">a</a>
      <p>the end</p>
    """
    return page(body, head)


def every_script(url: str) -> str:
    """A document that requests resources in every way that scripts offer."""
    ws = url.replace("http:", "ws:")
    return page(
        f"""<p>the end</p><script>
        const tries = [
          () => fetch("{url}/fetch"), () => navigator.sendBeacon("{url}/beacon"),
          () => new WebSocket("{ws}/socket"), () => new EventSource("{url}/events"),
          () => new Worker("{url}/worker.js"), () => import("{url}/import.js"),
          () => {{ new Image().src = "{url}/image.png" }}, () => window.open("{url}/open"),
          () => {{ const r = new XMLHttpRequest(); r.open("GET", "{url}/xhr"); r.send() }},
          () => new FontFace("G", "url({url}/face.woff2)").load(),
          () => document.write('<img src="{url}/written.png">'),
          () => navigator.serviceWorker.register("{url}/service.js"),
        ];
        addEventListener("pagehide", () => navigator.sendBeacon("{url}/last"));
        for (const one of tries)
          try {{ Promise.resolve(one()).catch(() => 0) }} catch (e) {{ }}
        </script>"""
    )
