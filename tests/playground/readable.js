// What keeps somebody from reading the page: run within it, returns sentences.
() => {
  const found = [];
  const parse = (text) => (text.match(/[\d.]+/g) || []).map(Number);

  // WCAG 2: relative luminance and contrast
  const linear = (part) => (part <= 0.03928 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4);
  const luminance = ([red, green, blue]) => 0.2126 * linear(red / 255) + 0.7152 * linear(green / 255) + 0.0722 * linear(blue / 255);
  const ground = (element) => {
    for (let each = element; each; each = each.parentElement || each.getRootNode().host) {
      const colour = parse(getComputedStyle(each).backgroundColor);
      if (colour.length === 3 || colour[3] > 0.9) return colour;
    }
    return [255, 255, 255];
  };
  const editor = document.querySelector("#mine").shadowRoot;
  for (const element of [...document.querySelectorAll("body *"), ...editor.querySelectorAll(".cm-content *, .cm-gutters *")]) {
    const shown = element.checkVisibility({ visibilityProperty: true }) && !element.disabled && !element.closest(".unseen, select");
    const own = [...element.childNodes].some((node) => node.nodeType === Node.TEXT_NODE && node.textContent.trim());
    if (!shown || !own) continue;
    const [light, dark] = [parse(getComputedStyle(element).color), ground(element)].map(luminance).sort((a, b) => b - a);
    const ratio = (light + 0.05) / (dark + 0.05);
    if (ratio < 4.5) found.push(`contrast ${ratio.toFixed(2)}: ${element.tagName} ${element.textContent.trim().slice(0, 40)}`);
  }

  for (const each of document.querySelectorAll("button, input, select, textarea, [tabindex], dialog, section")) {
    const named = each.getAttribute("aria-label") || each.getAttribute("aria-labelledby") || each.labels?.length;
    if (!named && !each.textContent.trim()) found.push(`no name: ${each.outerHTML.slice(0, 80)}`);
  }
  for (const attribute of ["aria-labelledby", "aria-describedby", "for"]) {
    for (const each of document.querySelectorAll(`[${attribute}]`)) {
      if (!document.getElementById(each.getAttribute(attribute))) found.push(`${attribute} of nothing: ${each.outerHTML.slice(0, 80)}`);
    }
  }
  const ids = [...document.querySelectorAll("[id]")].map((each) => each.id);
  found.push(...ids.filter((id, at) => ids.indexOf(id) !== at).map((id) => `id twice: ${id}`));
  return found;
}
