// Nodes as a heat map on a canvas: groups as blocks, a cell each, colours and patterns; found again under the pointer.

const HEADER = 18;
const GAP = 10;
const LARGEST = 34;
const SMALLEST = 3;

/** Places of the cells: as large as fits into a height, down to 3 pixels. */
function lay(groups, width, height) {
  const wide = groups.length <= 8;
  const labelled = groups.length > 1 || groups[0]?.label;
  const header = labelled ? HEADER : 0;
  const largest = Math.max(0, ...groups.map((group) => group.nodes.length));
  for (let size = LARGEST; ; size--) {
    const blocks = [];
    let x = 0, y = 0, row = 0;
    for (const group of groups) {
      const count = group.nodes.length;
      const most = Math.max(1, Math.floor(width / size));
      const columns = wide ? most : Math.min(most, Math.max(Math.ceil(56 / size), Math.ceil(Math.sqrt(1.6 * largest))));
      const rows = Math.ceil(count / columns);
      const blockWidth = wide ? width : columns * size;
      if (x && x + blockWidth > width) {
        x = 0;
        y += row + GAP;
        row = 0;
      }
      blocks.push({ group, x, y, columns, rows, header, width: blockWidth });
      row = Math.max(row, rows * size + header);
      x += blockWidth + GAP;
    }
    const whole = y + row;
    if (whole <= height || size === SMALLEST) return { blocks, size, height: Math.max(whole, size) };
  }
}

/** A small picture that repeats: lines or dots in one colour over another. */
function pattern(context, ground, ink, kind) {
  const tile = document.createElement("canvas");
  tile.width = tile.height = 8;
  const pen = tile.getContext("2d");
  pen.fillStyle = ground;
  pen.fillRect(0, 0, 8, 8);
  pen.strokeStyle = pen.fillStyle = ink;
  pen.lineWidth = 1.6;
  pen.beginPath();
  const line = (...points) => {
    pen.moveTo(points[0], points[1]);
    pen.lineTo(points[2], points[3]);
  };
  if (kind === "rising" || kind === "crossed") for (const at of [-8, 0, 8]) line(at - 1, 9, at + 9, -1);
  if (kind === "falling" || kind === "crossed") for (const at of [-8, 0, 8]) line(at - 1, -1, at + 9, 9);
  if (kind === "lying" || kind === "grid") line(0, 4, 8, 4);
  if (kind === "standing" || kind === "grid") line(4, 0, 4, 8);
  pen.stroke();
  if (kind === "dots") for (const [x, y] of [[2, 2], [6, 6]]) pen.fillRect(x - 1, y - 1, 2.2, 2.2);
  return context.createPattern(tile, "repeat");
}

/** The picture of all nodes. Styles are {fill, pattern, ink, mark}: see `paint`. */
export class NodeMap {
  /** @param frame element that holds the map; gets two canvases: cells, and what is marked on them. */
  constructor(frame) {
    this.frame = frame;
    this.cells = frame.appendChild(document.createElement("canvas"));
    this.marks = frame.appendChild(document.createElement("canvas"));
    this.marks.className = "marks";
    for (const canvas of [this.cells, this.marks]) canvas.setAttribute("aria-hidden", "true");
    this.groups = [];
    this.place = new Float32Array(0);
    this.size = LARGEST;
    this.width = 0;
  }

  /** Say which nodes there are: groups [{label, nodes: [positions]}]. */
  arrange(groups) {
    this.groups = groups;
    this.width = 0;
  }

  /** Fit the map into its frame, if that or the groups changed. */
  fit(height) {
    const width = Math.floor(this.frame.clientWidth);
    if (!width || (width === this.width && height === this.most)) return;
    this.width = width;
    this.most = height;
    const { blocks, size, height: whole } = lay(this.groups, width, height);
    this.blocks = blocks;
    this.size = size;
    this.order = [];
    this.place = new Float32Array(2 * this.groups.reduce((sum, group) => sum + group.nodes.length, 0));
    for (const block of blocks) {
      block.group.nodes.forEach((node, at) => {
        this.place[2 * node] = block.x + (at % block.columns) * size;
        this.place[2 * node + 1] = block.y + block.header + Math.floor(at / block.columns) * size;
        this.order.push(node);
      });
    }
    const ratio = Math.min(2, window.devicePixelRatio || 1);
    for (const canvas of [this.cells, this.marks]) {
      canvas.width = Math.round(width * ratio);
      canvas.height = Math.round(whole * ratio);
      canvas.style.height = `${whole}px`;
      canvas.getContext("2d").setTransform(ratio, 0, 0, ratio, 0, 0);
    }
    this.frame.style.height = `${whole}px`;
  }

  /**
   * Draw all cells.
   * @param kinds Uint8Array[nodes], positions in `styles`
   * @param styles [{fill, pattern?: "rising"|"falling"|…, ink?, size?: share of the cell}]
   */
  paint(kinds, styles, text) {
    if (!this.width) return;
    const pen = this.cells.getContext("2d");
    pen.clearRect(0, 0, this.width, this.cells.height);
    pen.font = "12px system-ui, sans-serif";
    pen.fillStyle = text;
    pen.textBaseline = "top";
    for (const block of this.blocks) {
      if (!block.header) continue;
      const label = [block.group.label, block.group.nodes.length.toLocaleString("en"), block.group.note].filter(Boolean).join(" · ");
      pen.save();
      pen.beginPath();
      pen.rect(block.x, block.y, block.width, HEADER);
      pen.clip();
      pen.fillText(label, block.x, block.y + 2);
      pen.restore();
    }
    const gap = this.size > 5 ? 1.5 : this.size > 3 ? 1 : 0.5;
    const side = this.size - gap;
    const paths = styles.map(() => new Path2D());
    for (let node = 0; node < kinds.length; node++) {
      const kind = kinds[node];
      const inner = side * (styles[kind].size ?? 1);
      const inset = (side - inner) / 2;
      paths[kind].rect(this.place[2 * node] + inset, this.place[2 * node + 1] + inset, inner, inner);
    }
    styles.forEach((style, kind) => {
      pen.fillStyle = style.pattern ? pattern(pen, style.fill, style.ink, style.pattern) : style.fill;
      pen.fill(paths[kind]);
    });
  }

  /** Mark single nodes: [{node, colour, shape: "ring"|"star"|"pin"}]. */
  mark(marked) {
    if (!this.width) return;
    const pen = this.marks.getContext("2d");
    pen.clearRect(0, 0, this.width, this.marks.height);
    for (const { node, colour, ground, shape } of marked) {
      if (node === null || node < 0 || 2 * node >= this.place.length) continue;
      const x = this.place[2 * node], y = this.place[2 * node + 1];
      const side = Math.max(this.size, 7) - 1;
      const middle = [x + (this.size - 1) / 2, y + (this.size - 1) / 2];
      for (const [width, ink] of [[4.5, ground], [2, colour]]) {
        pen.lineWidth = width;
        pen.strokeStyle = ink;
        pen.strokeRect(middle[0] - side / 2 - 0.5, middle[1] - side / 2 - 0.5, side + 1, side + 1);
      }
      if (shape === "ring") continue;
      pen.beginPath();
      // of small cells, the star is larger than its cell: the one that is looked for is found at a glance
      const radius = Math.max(shape === "star" ? 9 : 4, side / 3.6);
      for (let at = 0; at < 10; at++) {
        const angle = -Math.PI / 2 + (at * Math.PI) / 5;
        const far = shape === "star" && at % 2 ? radius / 2.2 : radius;
        pen[at ? "lineTo" : "moveTo"](middle[0] + far * Math.cos(angle), middle[1] + far * Math.sin(angle));
      }
      pen.closePath();
      pen.fillStyle = colour;
      pen.fill();
      pen.lineWidth = 1;
      pen.strokeStyle = ground;
      pen.stroke();
    }
  }

  /** Return the node under a point of the map, or -1. */
  at(x, y) {
    for (const block of this.blocks || []) {
      const column = Math.floor((x - block.x) / this.size);
      const row = Math.floor((y - block.y - block.header) / this.size);
      if (column < 0 || column >= block.columns || row < 0 || row >= block.rows) continue;
      return block.group.nodes[row * block.columns + column] ?? -1;
    }
    return -1;
  }

  /** Return the node in a direction from one: "left", "right", "up", "down", "first", "last". */
  beside(node, direction) {
    const at = this.order.indexOf(node);
    if (at < 0 || direction === "first") return this.order[0] ?? -1;
    if (direction === "last") return this.order[this.order.length - 1];
    if (direction === "left" || direction === "right") {
      return this.order[Math.max(0, Math.min(this.order.length - 1, at + (direction === "left" ? -1 : 1)))];
    }
    const x = this.place[2 * node] + this.size / 2, y = this.place[2 * node + 1] + this.size / 2;
    const step = direction === "up" ? -this.size : this.size;
    for (let tried = 1; tried < 80; tried++) {
      const found = this.at(x, y + step * tried);
      if (found >= 0 && found !== node) return found;
    }
    return node;
  }

  /** Return row and column in the block of a node, from 1, and the label of the block. */
  position(node) {
    for (const block of this.blocks || []) {
      const at = block.group.nodes.indexOf(node);
      if (at >= 0) return { label: block.group.label, row: Math.floor(at / block.columns) + 1, column: (at % block.columns) + 1 };
    }
    return { label: "", row: 1, column: 1 };
  }
}
