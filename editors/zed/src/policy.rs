//! Starts `policyctl lsp`: the command of the settings, else that on PATH.

use zed_extension_api::{self as zed, settings::LspSettings, LanguageServerId, Result};

struct PolicyExtension;

impl zed::Extension for PolicyExtension {
    fn new() -> Self {
        Self
    }

    fn language_server_command(
        &mut self,
        server: &LanguageServerId,
        worktree: &zed::Worktree,
    ) -> Result<zed::Command> {
        let settings = LspSettings::for_worktree(server.as_ref(), worktree)?;
        let (path, arguments) = match settings.binary {
            Some(binary) => (binary.path, binary.arguments),
            None => (None, None),
        };
        let command = path
            .or_else(|| worktree.which("policyctl"))
            .ok_or("policyctl is not on PATH: run pipx install 'kube-policy-scheduler[lsp]'")?;
        Ok(zed::Command {
            command,
            args: arguments.unwrap_or_else(|| vec!["lsp".to_string()]),
            env: worktree.shell_env(),
        })
    }
}

zed::register_extension!(PolicyExtension);
