// Which command starts the language server. Knows no editor, so that tests can ask it.

import { constants, promises as fs } from "node:fs";
import * as path from "node:path";

export interface Surroundings {
  /** The setting; empty: look for the server. */
  command: readonly string[];
  /** The value of PATH. */
  path: string;
  /** Folders that the editor has open, if they are trusted. */
  folders: readonly string[];
  platform: NodeJS.Platform;
}

const ENVIRONMENTS = [".venv", "venv"];

/** Returns the command of the setting, or that of the first `policyctl` there is; undefined where there is none. */
export async function findServer(around: Surroundings): Promise<string[] | undefined> {
  if (around.command.length > 0) {
    return [...around.command];
  }
  const windows = around.platform === "win32";
  const name = windows ? "policyctl.exe" : "policyctl";
  const places = around.path.split(windows ? ";" : ":").filter((folder) => path.isAbsolute(folder));
  for (const folder of around.folders) {
    for (const environment of ENVIRONMENTS) {
      places.push(path.join(folder, environment, windows ? "Scripts" : "bin"));
    }
  }
  for (const place of places) {
    const file = path.join(place, name);
    if (await isExecutable(file)) {
      return [file, "lsp"];
    }
  }
  return undefined;
}

async function isExecutable(file: string): Promise<boolean> {
  try {
    await fs.access(file, constants.X_OK);
    return (await fs.stat(file)).isFile();
  } catch {
    return false;
  }
}
