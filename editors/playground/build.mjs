// Bundles the editor into the package: npm ci && npm run build. `npm run check` fails if the bundle is not that of the sources.
// The first lines of the bundle name its sources by their SHA-256; tests/playground/test_bundle.py compares them without Node.
import { build } from "esbuild";
import { createHash } from "node:crypto";
import { readFileSync, readdirSync, writeFileSync } from "node:fs";

const SOURCES = ["build.mjs", "package.json", "package-lock.json", "src/editor.js"];
const PAGE = new URL("../../engine/kube_policy_scheduler/playground/page/", import.meta.url);
const here = (name) => new URL(name, import.meta.url);

const hash = createHash("sha256");
for (const name of SOURCES) hash.update(`${name}\n`).update(readFileSync(here(name)));

const made = await build({
  absWorkingDir: here(".").pathname,
  entryPoints: ["src/editor.js"],
  bundle: true,
  minify: true,
  format: "esm",
  target: "es2022",
  legalComments: "none",
  charset: "utf8",
  metafile: true,
  write: false,
});
const packages = [...new Set(Object.keys(made.metafile.inputs).map((path) => /^node_modules\/((?:@[^/]+\/)?[^/]+)/.exec(path)?.[1]).filter(Boolean))].sort();
const listed = packages.map((name) => `${name} ${JSON.parse(readFileSync(here(`node_modules/${name}/package.json`))).version}`);
const code = made.outputFiles[0].text;
const text = `// Generated: cd editors/playground && npm ci && npm run build. Licences: editor.LICENSE.txt
// sources ${hash.digest("hex")}
// bundle ${createHash("sha256").update(code).digest("hex")}
// ${listed.join(", ")}
${code}`;
const licences = packages
  .map((name) => {
    const folder = here(`node_modules/${name}/`);
    const file = readdirSync(folder).find((each) => /^licen[cs]e/i.test(each));
    return `${name}\n\n${readFileSync(new URL(file, folder), "utf8").trim()}\n`;
  })
  .join("\n---\n\n");

for (const [name, wanted] of [["editor.js", text], ["editor.LICENSE.txt", licences]]) {
  const path = new URL(name, PAGE);
  if (!process.argv.includes("--check")) writeFileSync(path, wanted);
  else if (readFileSync(path, "utf8") !== wanted) {
    console.error(`${name} is not what the sources give: cd editors/playground && npm ci && npm run build`);
    process.exitCode = 1;
  }
}
console.log(`editor.js: ${Math.round(text.length / 1000)} kB`);
