import assert from "node:assert/strict";
import { mkdtempSync, mkdirSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import * as path from "node:path";
import { test } from "node:test";

import { findServer } from "../src/find";

function folder(...names: string[]): string {
  const root = mkdtempSync(path.join(tmpdir(), "policy-"));
  for (const name of names) {
    mkdirSync(path.dirname(path.join(root, name)), { recursive: true });
    writeFileSync(path.join(root, name), "", { mode: name.endsWith(".txt") ? 0o644 : 0o755 });
  }
  return root;
}

const nothing = { command: [], path: "", folders: [], platform: "linux" as const };

test("the setting comes first", async () => {
  const onPath = folder("policyctl");
  const found = await findServer({ ...nothing, command: ["uvx", "policyctl", "lsp"], path: onPath });
  assert.deepEqual(found, ["uvx", "policyctl", "lsp"]);
});

test("then PATH, then the environment of the workspace", async () => {
  const onPath = folder("policyctl");
  const workspace = folder(".venv/bin/policyctl");
  const both = await findServer({ ...nothing, path: `/nowhere:${onPath}`, folders: [workspace] });
  assert.deepEqual(both, [path.join(onPath, "policyctl"), "lsp"]);
  const one = await findServer({ ...nothing, path: "/nowhere", folders: [folder(), workspace] });
  assert.deepEqual(one, [path.join(workspace, ".venv/bin/policyctl"), "lsp"]);
});

test("a relative entry of PATH is not followed, a folder is no command", async () => {
  const odd = folder("policyctl/x.txt");
  assert.equal(await findServer({ ...nothing, path: `.:${odd}` }), undefined);
});
