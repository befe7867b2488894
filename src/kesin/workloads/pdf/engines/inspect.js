async outside => {
  // Waits until images and fonts are loaded, and reports the state of the document. Every image is
  // loaded, even far down the page; `complete` is enough, since a broken image never gets a size.
  // With scripts off, no event and no timer fires here; only promises of the browser resolve. An
  // image that only a style uses is fetched at layout, which may be after the load event; if
  // documents may fetch URLs (`outside`), each such image is requested by name and awaited.
  // `inherited` reports what a later document in the same page would inherit.
  const images = Array.from(document.images);
  for (const image of images) image.loading = 'eager';
  const painted = new Set();
  for (const element of outside ? document.querySelectorAll('*') : []) {
    for (const part of [null, '::before', '::after']) {
      const style = getComputedStyle(element, part);
      for (const name of ['backgroundImage', 'borderImageSource', 'listStyleImage', 'maskImage'])
        for (const match of style[name].matchAll(/url\("([^"]+)"\)/g)) painted.add(match[1]);
    }
  }
  await Promise.allSettled(Array.from(painted, url => {
    const image = new Image();
    image.src = url;
    return image.decode();
  }));
  await Promise.allSettled(images.filter(image => !image.complete).map(image => image.decode()));
  await document.fonts.ready;
  const directive = meta => (meta.httpEquiv || '').trim().toLowerCase();
  const metas = Array.from(document.querySelectorAll('meta'));
  const ours = metas.findIndex(meta => directive(meta) === 'content-security-policy');
  return {
    loaded: document.readyState === 'complete',
    broken: images.filter(image => (image.currentSrc || image.src) && !image.naturalWidth
      && !image.naturalHeight).map(image => (image.currentSrc || image.src).slice(0, 300)),
    fonts: Array.from(document.fonts).filter(font => font.status === 'error')
      .map(font => font.family),
    about: Object.fromEntries([['title', document.title],
      ...metas.map(meta => [meta.name.trim().toLowerCase(), meta.content])]
      .map(([name, text]) => [name, text.slice(0, 1000).toWellFormed()])),
    refresh: metas.some(meta => directive(meta) === 'refresh'),
    inherited: metas.some((meta, index) => index !== ours && (
      !['', 'content-type', 'x-ua-compatible'].includes(directive(meta))
      || ['referrer', 'color-scheme'].includes(meta.name.trim().toLowerCase()))),
  };
}
