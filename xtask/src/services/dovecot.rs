//! Dovecot: it checks the logins of Postfix, and serves the mailbox that all mail goes to.

use std::fs;
use std::net::TcpStream;

use rustix::process::Signal;

use super::account::Account;
use super::{Service, Start, Started, free_port, program, spawn, wait_until};
use crate::failure::{Failure, Result, While};

/// Where the mailbox is read by IMAP, with the login of [`LOGIN`].
pub(super) const IMAP: &str = "OUTBOX_TEST_IMAP";
/// Where Postfix asks about logins.
pub(super) const SASL: &str = "OUTBOX_TEST_SASL";
/// The folder of the mailbox, for Postfix to deliver into.
pub(super) const MAILBOX: &str = "OUTBOX_TEST_MAILBOX";

/// User and password of IMAP and of the submission ports.
pub(super) const LOGIN: (&str, &str) = ("user@example.test", "s3cret");

pub(super) const SERVICE: Service = Service {
    name: "dovecot",
    variables: &[IMAP, SASL, MAILBOX],
    aliases: &[],
    needs: &[],
    stop: Signal::TERM,
    start,
};

/// Numbers of the account that owns the mailbox.
pub(super) fn owner() -> Result<(u32, u32)> {
    match Account::unprivileged()? {
        Account::Other { user, group } => Ok((user, group)),
        Account::Own => Err(Failure::new(
            "mail servers are started by root: use sudo, or leave out what needs them: cargo xtask test --without \
             dovecot,postfix",
        )),
    }
}

fn start(start: &Start) -> Result<Started> {
    let debian: &[&str] = &["dovecot-imapd"];
    let programs = program::folder_or_install(&["dovecot"], Vec::new, (SERVICE.name, debian, IMAP))?;
    let (user, group) = owner()?;
    let (imap, sasl) = (free_port()?, free_port()?);
    let folder = start.folder.display();
    let mailbox = start.folder.join("mail");
    fs::create_dir_all(&mailbox).or_fail(format_args!("make {}", mailbox.display()))?;
    Account::unprivileged()?.give(&mailbox)?;
    let users = start.folder.join("users");
    let (name, password) = LOGIN;
    fs::write(&users, format!("{name}:{{PLAIN}}{password}\n"))
        .or_fail(format_args!("write {}", users.display()))?;
    let settings = start.folder.join("dovecot.conf");
    let text = format!(
        "base_dir = {folder}/run\n\
         log_path = {folder}/log\n\
         listen = 127.0.0.1\n\
         protocols = imap\n\
         ssl = no\n\
         disable_plaintext_auth = no\n\
         auth_failure_delay = 0\n\
         auth_mechanisms = plain login\n\
         mail_location = maildir:{folder}/mail/Maildir\n\
         mail_max_userip_connections = 100\n\
         first_valid_uid = 1\n\
         first_valid_gid = 1\n\
         passdb {{\n driver = passwd-file\n args = {folder}/users\n}}\n\
         userdb {{\n driver = static\n args = uid={user} gid={group} home={folder}/mail\n}}\n\
         service auth {{\n inet_listener {{\n address = 127.0.0.1\n port = {sasl}\n }}\n}}\n\
         service imap-login {{\n inet_listener imap {{\n address = 127.0.0.1\n port = {imap}\n }}\n \
         inet_listener imaps {{\n port = 0\n }}\n}}\n\
         service anvil {{\n unix_listener anvil-auth-penalty {{\n mode = 0\n }}\n}}\n"
    );
    fs::write(&settings, text).or_fail(format_args!("write {}", settings.display()))?;

    let mut command = Account::Own.command(&programs.join("dovecot"));
    command.args(["-F", "-c"]).arg(&settings).current_dir(&start.folder);
    let log = start.folder.join("log");
    let mut child = spawn(&mut command, &log)?;
    let answers = |port| TcpStream::connect(("127.0.0.1", port)).is_ok();
    wait_until(&mut child, &log, || answers(imap) && answers(sasl))?;
    let variables = vec![
        (IMAP, format!("127.0.0.1:{imap}")),
        (SASL, format!("127.0.0.1:{sasl}")),
        (MAILBOX, mailbox.display().to_string()),
    ];
    Ok(Started { child, variables })
}
