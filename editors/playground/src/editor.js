// The editor of the playground: CodeMirror with the words of the language, and what the engine says beside the lines.
// It lives in a shadow root: its styles are adopted sheets there, so that the page needs no exception in its CSP.
import {
  acceptCompletion, autocompletion, closeBrackets, closeBracketsKeymap, completionKeymap, completionStatus,
  moveCompletionSelection, selectedCompletionIndex,
} from "@codemirror/autocomplete";
import { defaultKeymap, history, historyKeymap, toggleComment } from "@codemirror/commands";
import { bracketMatching, HighlightStyle, StreamLanguage, syntaxHighlighting } from "@codemirror/language";
import { forEachDiagnostic, lintGutter, lintKeymap, nextDiagnostic, setDiagnostics } from "@codemirror/lint";
import { highlightSelectionMatches, search, searchKeymap } from "@codemirror/search";
import { EditorState, StateEffect, StateField } from "@codemirror/state";
import {
  Decoration, drawSelection, EditorView, highlightActiveLine, hoverTooltip, keymap, lineNumbers, WidgetType,
} from "@codemirror/view";
import { tags } from "@lezer/highlight";

const any = (words) => words.map((word) => word.replace(/[.*+?^${}()|[\]\\]/g, "\\$&")).sort((a, b) => b.length - a.length).join("|");

/** Colours of a policy, from the lists that the TextMate grammar is made of too. */
function language(words) {
  const statement = new Set(words.statements);
  const further = new Set(words.words);
  const constant = new Set(words.constants);
  const defining = new Set(words.defining);
  const number = new RegExp(`^(?:${words.number})`);
  const name = new RegExp(`^(?:${words.name})`);
  const operator = new RegExp(`^(?:${any(words.operators)})`);
  return StreamLanguage.define({
    name: "policy",
    startState: () => ({ defines: false, tags: false }),
    token(stream, state) {
      if (stream.eatSpace()) return null;
      if (stream.peek() === "#") {
        stream.skipToEnd();
        return "comment";
      }
      if (stream.match(/^"(?:[^"\\]|\\.)*"?/)) return "string";
      const first = !/\S/.test(stream.string.slice(0, stream.start));
      const before = stream.start ? stream.string[stream.start - 1] : "";
      const word = stream.match(name);
      if (word) {
        const text = word[0];
        const call = /^\s*\(/.test(stream.string.slice(stream.pos));
        const value = /^\s*[=.(\[]/.test(stream.string.slice(stream.pos));
        if (state.tags) {
          stream.match(/^[-\w.]+/);
          state.tags = false;
          return "labelName";
        }
        if (state.defines) {
          state.defines = false;
          return "definition";
        }
        if (before === ".") return "propertyName";
        if (first && defining.has(text)) {
          state.defines = true;
          return "keyword";
        }
        if (first && statement.has(text) && !value) return "keyword";
        if (text === "as") state.tags = true;
        if (constant.has(text)) return "atom";
        if (further.has(text)) return "operatorKeyword";
        return call ? "function" : "variableName";
      }
      if (stream.match(number)) return "number";
      if (stream.match(operator)) return "operator";
      stream.next();
      return "punctuation";
    },
    blankLine(state) {
      state.defines = state.tags = false;
    },
    languageData: { commentTokens: { line: "#" }, closeBrackets: { brackets: ["(", "[", '"'] } },
    tokenTable: { function: tags.function(tags.variableName), definition: tags.definition(tags.variableName) },
  });
}

const colours = HighlightStyle.define([
  { tag: tags.keyword, color: "var(--code-keyword)", fontWeight: "600" },
  { tag: tags.operatorKeyword, color: "var(--code-keyword)" },
  { tag: tags.atom, color: "var(--code-number)" },
  { tag: tags.number, color: "var(--code-number)" },
  { tag: tags.string, color: "var(--code-string)" },
  { tag: tags.comment, color: "var(--quiet)", fontStyle: "italic" },
  { tag: tags.propertyName, color: "var(--code-property)" },
  { tag: tags.function(tags.variableName), color: "var(--code-function)" },
  { tag: tags.definition(tags.variableName), fontWeight: "600" },
  { tag: tags.labelName, color: "var(--code-string)" },
]);

const look = EditorView.theme({
  "&": { height: "100%", color: "var(--ink)", backgroundColor: "var(--paper)", fontSize: ".875rem" },
  "&.cm-focused": { outline: "none" }, // the page outlines the host
  ".cm-scroller": { fontFamily: "var(--mono)", lineHeight: "1.6" },
  ".cm-content": { caretColor: "var(--ink)", padding: ".5rem 0" },
  ".cm-cursor, .cm-dropCursor": { borderLeftColor: "var(--ink)" },
  "&.cm-focused > .cm-scroller > .cm-selectionLayer .cm-selectionBackground, .cm-selectionBackground": { background: "var(--selection)" },
  ".cm-gutters": { backgroundColor: "var(--panel)", color: "var(--quiet)", border: "0", borderRight: "1px solid var(--line)" },
  ".cm-activeLine": { backgroundColor: "var(--row)" },
  ".cm-activeLineGutter": { backgroundColor: "var(--row)" },
  ".cm-matchingBracket": { outline: "1px solid var(--accent)", backgroundColor: "transparent !important" },
  ".cm-tooltip": { backgroundColor: "var(--paper)", color: "var(--ink)", border: "1px solid var(--line)", borderRadius: "6px", boxShadow: "0 4px 16px rgb(0 0 0 / .18)" },
  ".cm-tooltip-autocomplete > ul > li[aria-selected]": { backgroundColor: "var(--accent)", color: "var(--paper)" },
  ".cm-tooltip-autocomplete > ul": { fontFamily: "var(--mono)", maxHeight: "14rem" },
  ".cm-completionDetail": { fontStyle: "normal", opacity: ".8" },
  ".cm-completionInfo, .hover": { padding: ".4rem .6rem", maxWidth: "28rem", fontSize: ".8125rem", whiteSpace: "pre-wrap" },
  ".hover code": { fontFamily: "var(--mono)" },
  ".cm-diagnostic": { padding: ".35rem .6rem", maxWidth: "32rem" },
  ".cm-diagnosticAction": { backgroundColor: "var(--accent)", color: "var(--paper)", borderRadius: "4px" },
  ".cm-lintRange-error": { backgroundImage: "none", textDecoration: "underline wavy var(--bad)", textDecorationSkipInk: "none" },
  ".cm-lintRange-warning": { backgroundImage: "none", textDecoration: "underline wavy var(--warn)", textDecorationSkipInk: "none" },
  ".cm-lintRange-info": { backgroundImage: "none", textDecoration: "underline dotted var(--quiet)" },
  ".note": { marginLeft: "1.5rem", padding: "0 .5em", borderRadius: "99px", fontSize: ".75rem", whiteSpace: "nowrap", fontFamily: "var(--sans)", color: "var(--quiet)", background: "var(--panel)", border: "1px solid var(--line)" },
  ".note.filter": { color: "var(--bad)" },
  ".note.more": { color: "var(--good)" },
  ".cm-panels": { backgroundColor: "var(--panel)", color: "var(--ink)" },
  ".cm-panels button, .cm-textfield": { background: "var(--paper)", color: "var(--ink)", border: "1px solid var(--line)" },
});

class Note extends WidgetType {
  constructor(text, kind) {
    super();
    this.text = text;
    this.kind = kind;
  }
  eq(other) {
    return other.text === this.text && other.kind === this.kind;
  }
  toDOM() {
    const made = document.createElement("span");
    made.className = `note ${this.kind}`;
    made.textContent = this.text;
    return made;
  }
}

const aged = new CSSStyleSheet(); // the theme knows nothing of the host
aged.replaceSync(":host(.old) .note { filter: grayscale(1); border-style: dashed; }");

const setNotes = StateEffect.define();
const notes = StateField.define({
  create: () => Decoration.none,
  update(shown, change) {
    shown = shown.map(change.changes);
    for (const effect of change.effects) {
      if (!effect.is(setNotes)) continue;
      const doc = change.state.doc;
      const found = effect.value
        .filter((note) => note.line >= 1 && note.line <= doc.lines)
        .map((note) => Decoration.widget({ widget: new Note(note.text, note.kind), side: 1 }).range(doc.line(note.line).to));
      shown = Decoration.set(found, true);
    }
    return shown;
  },
  provide: (field) => EditorView.decorations.from(field),
});

/** Typing over a selection: a browser keeps the style of what was there as an inline style, which the CSP forbids. */
function replaceSelected(event, view) {
  const { from, to, empty } = view.state.selection.main;
  if (event.inputType !== "insertText" || event.isComposing || empty || event.data === null) return false;
  event.preventDefault();
  const insert = () => view.state.update(view.state.replaceSelection(event.data), { userEvent: "input.type", scrollIntoView: true });
  if (!view.state.facet(EditorView.inputHandler).some((handle) => handle(view, from, to, event.data, insert))) view.dispatch(insert());
  return true;
}

/** Tab takes the selected completion, or the first one; without a list, it leaves the editor as on every page. */
function acceptFirst(view) {
  if (completionStatus(view.state) !== "active") return false;
  if (selectedCompletionIndex(view.state) === null) moveCompletionSelection(true)(view);
  return acceptCompletion(view);
}

/**
 * Make an editor.
 * @param host element that takes the editor in a shadow root
 * @param given words: lists of the language; label: its name for screen readers; change(text), complete(offset),
 *   hover(offset): what the page does; offsets are those of JavaScript
 */
export function createEditor(host, given) {
  const root = host.attachShadow({ mode: "open" });
  let quiet = false;

  async function complete(context) {
    const word = context.matchBefore(/[\w.-]*/);
    if (!context.explicit && /^\d/.test(word?.text ?? "")) return null; // a number
    if (!context.explicit && !(word && word.from < word.to) && !/[".(]$/.test(context.state.sliceDoc(Math.max(0, context.pos - 1), context.pos))) return null;
    const found = await given.complete(context.pos);
    if (!found || !found.length || context.aborted) return null;
    const from = Math.min(...found.map((each) => each.start));
    // a word that is whole, and begins no other one, needs no list
    const isWhole = (text) => found.some((each) => each.label === text) && !found.some((each) => each.label !== text && each.label.startsWith(text));
    if (!context.explicit && isWhole(context.state.sliceDoc(from, context.pos))) return null;
    return {
      from,
      validFor: (text) => /^\w*$/.test(text) && !isWhole(text),
      options: found.map((each) => ({
        label: each.label,
        apply: each.insert,
        detail: each.detail || undefined,
        info: each.documentation ? () => described(each.documentation) : undefined,
      })),
    };
  }

  const hover = hoverTooltip(async (view, at) => {
    const found = await given.hover(at);
    if (!found) return null;
    return {
      pos: found.start,
      end: found.end,
      create: () => ({ dom: described(found.markdown) }),
    };
  });

  const extensions = [
    lineNumbers(), history(), drawSelection(), bracketMatching(), closeBrackets(), highlightActiveLine(),
    highlightSelectionMatches(), search({ top: true }), lintGutter(), notes, hover, language(given.words), syntaxHighlighting(colours), look,
    // nothing is selected before an arrow key is pressed: until then, Enter ends the line
    autocompletion({ override: [complete], activateOnTypingDelay: 60, icons: false, selectOnOpen: false }),
    EditorView.lineWrapping,
    EditorView.contentAttributes.of({ "aria-label": given.label, "aria-multiline": "true" }),
    keymap.of([{ key: "Tab", run: acceptFirst }, ...closeBracketsKeymap, ...completionKeymap, ...searchKeymap, ...historyKeymap, ...lintKeymap, ...defaultKeymap,
      { key: "Mod-/", run: toggleComment }]),
    EditorView.domEventHandlers({ beforeinput: replaceSelected }),
    EditorView.updateListener.of((update) => {
      if (update.docChanged && !quiet) given.change(update.state.doc.toString());
    }),
  ];
  const fresh = (doc) => EditorState.create({ doc, extensions });
  const view = new EditorView({ root, parent: root, state: fresh("") });
  root.adoptedStyleSheets = [...root.adoptedStyleSheets, aged];
  let problems = []; // what is wrong with the present text
  let drawn = 0; // how many were drawn last
  let states = new Map(); // of files that are not shown, with their history
  let shown = null;

  const own = {
    get text() {
      return view.state.doc.toString();
    },
    /** Show a file; each has a history of its own. */
    open(name, text) {
      if (name === shown && text === own.text) return;
      if (shown !== null) states.set(shown, view.state);
      const kept = states.get(name);
      view.setState(kept && kept.doc.toString() === text ? kept : fresh(text));
      shown = name;
    },
    /** Forget the histories: other files come. */
    forget() {
      states = new Map();
      shown = null;
    },
    /** Replace the text; `heard` says whether `change` is called. */
    setText(text, heard = false) {
      quiet = !heard;
      view.dispatch({ changes: { from: 0, to: view.state.doc.length, insert: text } });
      quiet = false;
    },
    /** Apply edits, offsets of the present text; one step of undo. */
    edit(edits) {
      const length = view.state.doc.length;
      view.dispatch({
        changes: edits.map((each) => ({ from: Math.min(each.start, length), to: Math.min(each.end, length), insert: each.text })),
        userEvent: "input.fix",
      });
    },
    /**
     * Show diagnostics: start, end, severity, message, code, fixes [{title, apply()}]. Those that are shown already,
     * moved with the text, stay as they are: to draw the lines again would hold up the picture.
     */
    setDiagnostics(found) {
      const length = view.state.doc.length;
      problems = found;
      const wanted = found.map((each, at) => ({
        at,
        from: Math.min(each.start, length),
        to: Math.min(Math.max(each.end, each.start), length),
        severity: each.severity === "information" ? "info" : each.severity,
        message: each.message,
        source: each.code,
        actions: each.fixes.map((fix, number) => ({ name: fix.title, apply: () => problems[at]?.fixes[number]?.apply() })),
      }));
      const said = (each, from, to) => JSON.stringify([each.at, from, to, each.severity, each.message, each.source, each.actions.map((action) => action.name)]);
      const shown = new Set();
      forEachDiagnostic(view.state, (each, from, to) => shown.add(said(each, from, to)));
      // of one whose text is gone the mark is gone, too, and the sign in the gutter is still there
      const asDrawn = shown.size === drawn && shown.size === wanted.length;
      if (asDrawn && wanted.every((each) => shown.has(said(each, each.from, each.to)))) return;
      drawn = wanted.length;
      view.dispatch(setDiagnostics(view.state, wanted));
    },
    /** Write a note behind each line: line (from 1), text, kind. Those that are there already stay. */
    setNotes(found) {
      const { doc } = view.state;
      const shown = [];
      for (let at = view.state.field(notes).iter(); at.value; at.next()) shown.push([doc.lineAt(at.from).number, at.value.spec.widget]);
      const made = (note, [line, widget]) => note.line === line && note.text === widget.text && note.kind === widget.kind;
      if (shown.length === found.length && found.every((note, at) => made(note, shown[at]))) return;
      view.dispatch({ effects: setNotes.of(found) });
    },
    /** Let the notes look like those of an earlier text. */
    setStale(is) {
      host.classList.toggle("old", is);
    },
    focus: () => view.focus(),
    /** Put the cursor at an offset and show it. */
    select(start, end = start) {
      const length = view.state.doc.length;
      view.dispatch({ selection: { anchor: Math.min(start, length), head: Math.min(end, length) }, scrollIntoView: true });
      view.focus();
    },
    next: () => nextDiagnostic(view),
  };
  return own;
}

function described(markdown) {
  const made = document.createElement("div");
  made.className = "hover";
  made.append(...prose(markdown));
  return made;
}

/** The little of Markdown that hovers use: paragraphs, `code`, **strong**, fenced blocks. */
function prose(text) {
  const made = [];
  text.split(/```\w*\n?/).forEach((part, at) => {
    if (at % 2) {
      const code = document.createElement("code");
      code.textContent = part;
      made.push(code);
      return;
    }
    for (const piece of part.split(/(`[^`]+`|\*\*[^*]+\*\*)/)) {
      const marked = /^(`|\*\*)(.+)\1$/s.exec(piece);
      if (!marked) made.push(piece);
      else {
        const element = document.createElement(marked[1] === "`" ? "code" : "strong");
        element.textContent = marked[2];
        made.push(element);
      }
    }
  });
  return made;
}
