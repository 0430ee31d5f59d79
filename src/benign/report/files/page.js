"use strict";
// Draws the figures that Python has built, and handles mouse, touch and keyboard. Texts are set as text, never as markup.
(async () => {
  const find = (selector, within = document) => within.querySelector(selector);
  const all = (selector, within = document) => [...within.querySelectorAll(selector)];
  const make = (tag, text = "", name = "") => Object.assign(document.createElement(tag), { textContent: text, className: name });

  // Data that Python has compressed.
  async function unpacked(id) {
    const coded = atob(document.getElementById(id).textContent);
    const bytes = new Uint8Array(coded.length);
    for (let i = 0; i < coded.length; i++) bytes[i] = coded.charCodeAt(i);
    return new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip")));
  }
  const [library, data] = await Promise.all([unpacked("plotly").then((r) => r.text()), unpacked("data").then((r) => r.json())]);
  document.head.append(make("script", library));
  // Data that the first figure does not need is unpacked on demand.
  const loaded = new Map();
  function complete(number) {
    if (!loaded.has(number)) loaded.set(number, unpacked(`later${number}`).then((r) => r.json()).then((later) => {
      const folder = data.folders[number];
      return Object.assign(folder, later, { figures: { ...folder.figures, ...later.figures } });
    }));
    return loaded.get(number);
  }

  // Figures have no colours of text and background; the page sets them.
  const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
  function coloured(figure) {
    const ink = colour("ink"), layout = structuredClone(figure.layout);
    const lines = { gridcolor: ink + "22", linecolor: ink, zerolinecolor: ink + "44", tickcolor: ink };
    Object.assign(layout.xaxis, lines);
    Object.assign(layout.yaxis, lines);
    layout.font = { color: ink, size: 12 };
    Object.assign(layout.hoverlabel, { bgcolor: colour("paper"), bordercolor: ink, font: { color: ink } });
    return { data: figure.data, layout };
  }
  const config = { responsive: true, displayModeBar: false, scrollZoom: false, doubleClick: false };
  const drawn = new Map(); // element -> figure without colours, so that it can be drawn again
  const draw = (element, figure, more = {}) => {
    drawn.set(element, [figure, more]);
    const { data: traces, layout } = coloured(figure);
    find(".wait", element)?.remove();
    return Plotly.react(element, traces, { ...layout, ...more }, config);
  };
  // Height of the legend below the axes: one line for each of its names.
  function legendHeight(figure) {
    if (!figure) return 0;
    const names = figure.data.filter((trace) => trace.name && trace.showlegend !== false).length;
    if (!names || figure.layout.showlegend === false) return 0;
    return names * 20 + 56;
  }

  // A group of folders side by side.
  class Group {
    constructor(section) {
      this.section = section;
      this.folders = all("figure[data-folder]", section).map((figure) => new Map_(this, figure));
      this.quantity = find(".quantity", section);
      this.sliders = all("[data-axis]", section); // and menus, for values without an order
      this.quantity?.addEventListener("change", () => this.show());
      for (const slider of this.sliders) slider.addEventListener("input", () => { this.label(slider); this.show(); });
    }
    label(slider) {
      if (!slider.dataset.labels) return;
      const label = JSON.parse(slider.dataset.labels)[slider.value];
      find("output", slider.closest("label")).textContent = label;
      slider.setAttribute("aria-valuetext", label);
    }
    get at() { return this.sliders.map((slider) => slider.value).join(","); }
    async show() {
      if (!this.quantity) return;
      const name = this.quantity.value;
      await Promise.all(this.folders.filter(({ data }) => !(name in data.figures)).map(({ number }) => complete(number)));
      const first = this.folders.map(({ data }) => data.figures[name]?.[this.at]).find(Boolean);
      find(".about", this.section).textContent = first?.about ?? "";
      const heights = this.folders.map(({ data }) => legendHeight(data.figures[name]?.[this.at]));
      await Promise.all(this.folders.map((folder) => folder.show(name, this.at, Math.max(...heights))));
    }
  }

  // One map, or one line along an axis.
  class Map_ {
    constructor(group, figure) {
      this.group = group;
      this.number = figure.dataset.folder;
      this.data = data.folders[this.number];
      this.element = find(".map", figure);
      this.text = find(".cell-text", figure);
      this.jump = find(".jump", figure);
      this.numbers = find(".numbers", figure);
      this.cell = [0, 0];
      this.element.addEventListener("keydown", (event) => this.key(event));
      this.element.addEventListener("focus", () => this.element.matches(":focus-visible") && this.move(0, 0));
      this.numbers.addEventListener("toggle", () => this.table());
    }
    get flat() { return this.data.y === null; }
    get main() { return this.figure.data.find((trace) => trace.text); }
    textOf(row, column) { const { text } = this.main; return this.flat ? text[column] : text[row][column]; }
    async show(name, at, legend) {
      this.figure = this.data.figures[name]?.[at];
      if (!this.figure) {
        Plotly.purge(this.element);
        drawn.delete(this.element);
        this.element.replaceChildren(make("p", "No cell has a value here.", "wait"));
        this.element.dataset.drawn = name;
        this.listens = this.cursor = this.chosen = false;
        this.text.textContent = "";
        this.jump.hidden = true;
        find(".scroll", this.numbers).replaceChildren();
        return;
      }
      const height = (this.element.clientWidth < 420 ? 360 : 420) + legend;
      this.element.style.height = `${height}px`;
      await draw(this.element, this.figure, { height, margin: { ...this.figure.layout.margin, b: 8 + legend }, shapes: this.shapes() });
      this.element.dataset.drawn = name;
      if (!this.listens) {
        this.listens = true;
        this.element.on("plotly_click", ({ points }) => {
          const at = points[0].pointNumber;
          this.choose(...(this.flat ? [0, at] : at));
        });
      }
      this.table();
      if (this.chosen && this.leads) this.choose(...this.chosen);
    }
    // The cell whose training is shown in a solid frame, the one where arrow keys are in a dotted one.
    shapes() {
      const same = this.chosen && this.cursor && this.chosen.join() === this.cell.join();
      return [...(this.chosen ? [this.frame(this.chosen, "solid")] : []), ...(this.cursor && !same ? [this.frame(this.cell, "dot")] : [])];
    }
    frame([row, column], dash) {
      const { x, y } = this.main, line = { color: "#ff2d95", width: 3, dash };
      if (this.flat) return { type: "line", xref: "x", yref: "paper", x0: x[column], x1: x[column], y0: 0, y1: 1, line };
      return { type: "rect", xref: "x", yref: "y", x0: x[column], x1: x[column + 1], y0: y[row], y1: y[row + 1], line };
    }
    get size() { const { text } = this.main; return this.flat ? [1, text.length] : [text.length, text[0].length]; }
    mark(row, column) {
      this.cell = [row, column];
      this.cursor = true;
      this.text.textContent = asText(this.textOf(row, column));
      const more = drawn.get(this.element)[1];
      more.shapes = this.shapes();
      Plotly.relayout(this.element, { shapes: more.shapes });
    }
    move(down, right) {
      if (!this.figure) return;
      const [rows, columns] = this.size;
      const inside = (value, count) => Math.min(Math.max(value, 0), count - 1);
      this.mark(inside(this.cell[0] + down, rows), inside(this.cell[1] + right, columns));
    }
    key(event) {
      const steps = { ArrowUp: [1, 0], ArrowDown: [-1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] };
      if (event.key in steps) this.move(...steps[event.key]);
      else if (event.key === "Enter" || event.key === " ") this.choose(...this.cell);
      else return;
      event.preventDefault();
    }
    choose(row, column) {
      this.select(row, column, true);
      // The same cell is framed in the other folders; the training of one folder is shown below.
      for (const other of this.group.folders) if (other !== this) other.select(row, column, false);
      const at = { [this.data.x]: column, [this.data.y]: row };
      for (const slider of this.group.sliders) at[slider.dataset.axis] = Number(slider.value);
      detail(this.group.section, this.number, at);
    }
    select(row, column, leads) {
      this.leads = leads;
      const [rows, columns] = this.figure ? this.size : [0, 0];
      if (row >= rows || column >= columns) return;
      this.chosen = [row, column];
      this.mark(row, column);
      this.jump.hidden = !leads;
    }
    async table() {
      if (!this.numbers.open || !this.figure) return;
      const folder = await complete(this.number), labels = (axis) => folder.labels[folder.dims.indexOf(axis)];
      const { text } = this.main, columns = labels(folder.x), rows = this.flat ? [""] : labels(folder.y);
      const table = make("table"), body = make("tbody"), head = make("tr");
      const heading = (word, scope) => Object.assign(make("th", word), { scope });
      head.append(make("td", this.flat ? folder.x : `${folder.y} \\ ${folder.x}`), ...columns.map((word) => heading(word, "col")));
      body.append(head);
      for (let row = rows.length - 1; row >= 0; row--) {
        const line = make("tr"), cells = this.flat ? text : text[row];
        line.append(heading(rows[row], "row"));
        // The second line of the text of a cell has the quantity and its number.
        for (const cell of cells) line.append(make("td", asText(cell).split("\n")[1].replace(/^.*? (?=no value$|[^ ]+( \[.*\])?$)/, "")));
        body.append(line);
      }
      table.append(body);
      find(".scroll", this.numbers).replaceChildren(table);
    }
  }
  // The text of a cell in a figure, which is markup of plotly, as plain text.
  const asText = (text) => text.replaceAll("<br>", "\n").replaceAll("&lt;", "<").replaceAll("&gt;", ">").replaceAll("&amp;", "&");

  // The training of one cell.
  const curves = new Map();
  async function numbersOf(number) {
    if (!curves.has(number)) curves.set(number, unpacked(`curves${number}`).then((r) => r.arrayBuffer()).then((buffer) => {
      const bytes = new Uint8Array(buffer), count = bytes.length / 3, bits = new Uint32Array(count);
      for (let i = 0; i < count; i++) bits[i] = (bytes[i] << 24) | (bytes[count + i] << 16) | (bytes[2 * count + i] << 8);
      return new Float32Array(bits.buffer);
    }));
    return curves.get(number);
  }
  // References `{"curve": [name, kind]}` in a figure, filled in for one cell.
  function filled(figure, numbers, { names, kinds, points }, cell) {
    const at = ([name, kind]) => {
      const start = ((cell * names + name) * kinds + kind) * points;
      return Array.from(numbers.subarray(start, start + points), (value) => (Number.isFinite(value) ? value : null));
    };
    const traces = figure.data.map((trace) => ({ ...trace, y: at(trace.y.curve) }));
    // Runs end before the last step that others reach.
    const last = Math.max(...traces.map(({ y }) => y.findLastIndex((value) => value !== null)));
    return { ...figure, data: traces.map((trace) => ({ ...trace, x: trace.x.slice(0, last + 1), y: trace.y.slice(0, last + 1) })) };
  }
  const turns = new Map(); // section -> how often a cell was chosen there: the last choice wins
  async function detail(section, number, at) {
    const mine = (turns.get(section) ?? 0) + 1;
    turns.set(section, mine);
    const [folder, numbers] = await Promise.all([complete(number), numbersOf(number)]);
    if (mine !== turns.get(section)) return;
    const index = folder.dims.map((dim) => at[dim] ?? 0);
    const cell = index.reduce((number, i, k) => number * folder.sizes[k] + i, 0);
    const where = folder.dims.map((dim, k) => `${dim} ${folder.labels[k][index[k]]}`).join(", ") || "the only cell";
    const which = find(".which", section);
    which.className = "which";
    which.textContent = `${all("figure", section).length > 1 ? `${folder.label}: ` : ""}${where}\n${folder.ended[cell]}`;
    section.dataset.cell = cell;
    const box = find(".curves", section), parts = [];
    for (const old of all(".curve", box)) { Plotly.purge(old); drawn.delete(old); }
    box.replaceChildren();
    const frame = (title, wide) => {
      const part = make("div", "", wide ? "wide" : "");
      if (title) part.append(make("h4", title));
      box.append(part);
      return part;
    };
    // A run that diverged at once has a single point: there is no line to draw.
    const lined = (figure) => filled(figure, numbers, folder.curves, cell).data.some(({ y }) => y.length > 1);
    const together = folder.curves.together.filter(({ figure }) => lined(figure)), alone = folder.curves.alone.filter(({ figure }) => lined(figure));
    // Drawn when all parts are on the page: the width of each depends on the others.
    const show = (part, figure) => {
      const element = find(".curve", part) ?? part.appendChild(make("div", "", "curve"));
      const legend = legendHeight(figure);
      element.style.height = `${230 + legend}px`;
      parts.push(() => draw(element, filled(figure, numbers, folder.curves, cell), { margin: { ...figure.layout.margin, b: 8 + legend } }));
      return parts.at(-1);
    };
    const main = frame("", true).appendChild(make("dl", "", "main"));
    for (const [title, values] of folder.numbers) {
      const line = main.appendChild(make("div"));
      line.append(make("dt", title), make("dd", values[cell]));
    }
    for (const { title, figure } of together) show(frame(title), figure);
    if (alone.length) {
      const part = frame("Coordinates of the theory", together.length % 2 === 0), select = make("select");
      for (const { title } of alone) select.append(make("option", title));
      select.setAttribute("aria-label", "Coordinate of the theory");
      select.selectedIndex = Math.max(alone.findIndex(({ title }) => title === section.dataset.coordinate), 0);
      const meaning = make("p");
      part.append(select, meaning);
      const change = () => {
        const { title, meaning: text, figure } = alone[select.selectedIndex];
        section.dataset.coordinate = title;
        meaning.textContent = text;
        return show(part, figure);
      };
      select.addEventListener("change", () => change()());
      change();
    }
    if (folder.curves.kinds > 1 && parts.length) frame("", true).append(make("p", "Lines: means over the seeds; a run that has ended stays at its last value. Bands: from the lowest to the highest."));
    if (folder.curves.left_out) frame("", true).append(make("p", `${folder.curves.left_out} further curves are left out of this page: there are too many cells. They are in the folder of the runs.`));
    const recorded = folder.curves.together.length + folder.curves.alone.length + folder.curves.left_out;
    if (!parts.length) frame("", true).append(make("p", recorded ? "This cell has no curves to draw." : "No curves were recorded along training."));
    for (const { title, tables } of folder.theorems) if (tables[cell]) conditions(frame("Conditions of the theorem at this cell", true), title, tables[cell]);
    await Promise.all(parts.map((part) => part()));
    section.dataset.shown = cell;
  }
  function conditions(part, title, rows) {
    const table = make("table", "", "conditions"), body = make("tbody"), head = make("tr");
    const names = ["Condition", "Statement", "Here", "Bound", "Slack", ""];
    for (const name of names) head.append(Object.assign(make("th", name), { scope: "col" }));
    for (const row of rows) {
      const line = make("tr");
      row.forEach((word, k) => { const box = make("td", word); box.dataset.label = names[k]; line.append(box); });
      line.lastChild.className = { holds: "good", fails: "bad" }[row[5].split(",")[0]] ?? "open";
      body.append(line);
    }
    table.append(make("thead"), body);
    table.firstChild.append(head);
    const more = make("details"), summary = make("summary", title);
    const failing = rows.filter((row) => row[5] === "fails").length;
    more.append(summary, table);
    part.append(make("p", failing ? `${failing} of the conditions fail here: the theorem promises nothing for this cell.` : "All conditions hold here."), more);
  }

  // Claims.
  const form = find(".filters");
  const simply = (text) => text.toLowerCase().replaceAll("²", "^2");
  function filter() {
    const { paper, verdict, reading, text } = form.elements, words = simply(text.value).split(/\s+/).filter(Boolean);
    const rows = all(".claims tbody tr"), shown = rows.filter((row) => {
      const content = simply(row.textContent), outcome = row.dataset.verdict;
      return (!paper.value || row.dataset.paper === paper.value) && words.every((word) => content.includes(word))
        && (!reading?.value || row.dataset.reading === reading.value)
        && (!verdict.value || outcome === verdict.value || (verdict.value === "judged" && outcome !== "not judged"));
    });
    for (const row of rows) row.hidden = !shown.includes(row);
    const claims = (rows) => new Set(rows.map((row) => find("b", row).textContent)).size;
    const verdicts = shown.length > claims(shown) ? ` (${shown.length} verdicts)` : "";
    find(".count", form).textContent = `${claims(shown)} of ${claims(rows)} claims${verdicts}`;
    find(".nothing").hidden = shown.length > 0;
  }
  if (form) {
    form.addEventListener("input", filter);
    form.addEventListener("submit", (event) => event.preventDefault());
    find(".nothing .all").addEventListener("click", () => {
      form.reset();
      form.elements.verdict.value = "";
      filter();
    });
    filter();
  }

  // Buttons.
  for (const button of all(".copy")) button.addEventListener("click", async () => {
    const source = find("code, pre", button.parentElement);
    try { await navigator.clipboard.writeText(source.textContent); } catch {
      getSelection().selectAllChildren(source);
      document.execCommand("copy");
    }
    button.textContent = "Copied";
    setTimeout(() => { button.textContent = "Copy"; }, 1500);
  });
  const recolour = () => { for (const [element, [figure, more]] of drawn) draw(element, figure, more); };
  const dark = matchMedia("(prefers-color-scheme: dark)");
  find("#theme").addEventListener("click", () => {
    const root = document.documentElement;
    root.dataset.theme = (root.dataset.theme ?? (dark.matches ? "dark" : "light")) === "dark" ? "light" : "dark";
    recolour();
  });
  dark.addEventListener("change", recolour);

  // Start: draw every figure, then the training of one cell of each group.
  const groups = all(".group").map((section) => new Group(section));
  await Promise.all(groups.map((group) => group.show()));
  document.body.dataset.ready = "yes";
  await new Promise((later) => setTimeout(later, 100));
  for (const group of groups) {
    const first = group.folders[0];
    if (first?.figure) {
      first.choose(...first.size.map((count) => Math.floor(count / 2))); // in the middle, where values change
    } else if (!group.folders.length) {
      await detail(group.section, find(".detail", group.section).dataset.folder, {});
    }
  }
})();
