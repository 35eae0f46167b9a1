// Starts the language server of policies, and says what to install where there is none.

import * as vscode from "vscode";
import { LanguageClient, type LanguageClientOptions, type ServerOptions } from "vscode-languageclient/node";

import { findServer } from "./find";

const INSTALL = "pipx install 'kube-policy-scheduler[lsp]'";
const TOLD = "policy.toldWhatToInstall";

let client: LanguageClient | undefined;
let output: vscode.LogOutputChannel;

export async function activate(context: vscode.ExtensionContext): Promise<void> {
  output = vscode.window.createOutputChannel("Policy", { log: true });
  context.subscriptions.push(
    output,
    vscode.commands.registerCommand("policy.restart", () => restart(context)),
    vscode.commands.registerCommand("policy.showOutput", () => output.show()),
    vscode.workspace.onDidChangeConfiguration((event) => {
      if (event.affectsConfiguration("policy.server.command")) {
        void restart(context);
      }
    }),
    vscode.workspace.onDidGrantWorkspaceTrust(() => void restart(context)),
  );
  await start(context);
}

export async function deactivate(): Promise<void> {
  await stop();
}

async function restart(context: vscode.ExtensionContext): Promise<void> {
  await stop();
  await start(context);
}

async function stop(): Promise<void> {
  const running = client;
  client = undefined;
  if (running !== undefined) {
    await running.dispose().catch((error: unknown) => output.appendLine(String(error)));
  }
}

async function start(context: vscode.ExtensionContext): Promise<void> {
  if (!vscode.workspace.isTrusted) {
    output.appendLine("The workspace is not trusted: the language server is not started.");
    return;
  }
  const folders = (vscode.workspace.workspaceFolders ?? []).filter((folder) => folder.uri.scheme === "file");
  const command = await findServer({
    command: vscode.workspace.getConfiguration("policy").get<string[]>("server.command", []),
    path: process.env.PATH ?? "",
    folders: folders.map((folder) => folder.uri.fsPath),
    platform: process.platform,
  });
  if (command === undefined) {
    await sayWhatToInstall(context);
    return;
  }
  const [executable, ...args] = command;
  if (executable === undefined) {
    return;
  }
  output.appendLine(`Starting ${command.join(" ")}`);
  const options: ServerOptions = { command: executable, args };
  const clientOptions: LanguageClientOptions = {
    documentSelector: [
      { language: "policy" },
      { scheme: "file", language: "yaml", pattern: "**/*.test.yaml" },
      { scheme: "file", language: "yaml", pattern: "**/*config*.yaml" },
    ],
    outputChannel: output,
    synchronize: { fileEvents: vscode.workspace.createFileSystemWatcher("**/*.{policy,test.yaml}") },
  };
  client = new LanguageClient("policy", "Policy", options, clientOptions);
  try {
    await client.start();
  } catch (error) {
    output.appendLine(String(error));
    const shown = await vscode.window.showErrorMessage(
      `The language server of policies did not start. It may need: ${INSTALL}`,
      "Show Output",
    );
    if (shown !== undefined) {
      output.show();
    }
  }
}

async function sayWhatToInstall(context: vscode.ExtensionContext): Promise<void> {
  output.appendLine(`There is no policyctl on PATH or in the environment of the workspace. Install it: ${INSTALL}`);
  if (context.globalState.get<boolean>(TOLD) === true) {
    return;
  }
  await context.globalState.update(TOLD, true);
  const chosen = await vscode.window.showInformationMessage(
    "To check policies while you write them, install policyctl with its language server.",
    "Copy the Command",
  );
  if (chosen !== undefined) {
    await vscode.env.clipboard.writeText(INSTALL);
  }
}
