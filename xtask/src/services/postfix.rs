//! Postfix: takes mail for `example.test` in plain text, with STARTTLS and logins, and with TLS, and puts it all
//! into one mailbox. Nothing goes out.

use std::fs;
use std::net::TcpStream;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::Path;

use rustix::process::Signal;

use super::account::Account;
use super::dovecot::{self, LOGIN};
use super::{Service, Start, Started, free_port, program, spawn, wait_until};
use crate::failure::{Failure, Result, While};
use crate::run;

/// Plain text, and STARTTLS for who wants it; no login.
const SMTP: &str = "OUTBOX_TEST_SMTP";
/// STARTTLS and a login.
const SUBMISSION: &str = "OUTBOX_TEST_SMTP_SUBMISSION";
/// TLS from the first byte and a login.
const TLS: &str = "OUTBOX_TEST_SMTP_TLS";
/// The file of the certificate authority, in PEM.
const CA: &str = "OUTBOX_TEST_SMTP_CA";
/// `user password`, for the ports with a login and for IMAP.
const USER: &str = "OUTBOX_TEST_SMTP_LOGIN";

pub(super) const SERVICE: Service = Service {
    name: "postfix",
    variables: &[SMTP, SUBMISSION, TLS, CA, USER],
    aliases: &[("SMTP_SERVER", SMTP), ("SMTP_CA", CA)],
    needs: &["dovecot"],
    stop: Signal::TERM,
    start,
};

/// What is answered to recipients of these names.
const REPLIES: &str = "inline:{ \
    {defer@example.test = 450 4.2.0 mailbox busy}, \
    {full@example.test = 452 4.2.2 mailbox full}, \
    {gone@example.test = 550 5.1.1 no such user}, \
    {policy@example.test = 554 5.7.1 rejected by policy}, \
    {hup@example.test = 421 4.3.2 shutting down} }";

fn start(start: &Start) -> Result<Started> {
    let (Some(sasl), Some(mailbox)) = (start.known.get(dovecot::SASL), start.known.get(dovecot::MAILBOX))
    else {
        let own = dovecot::IMAP;
        return Err(Failure::new(format!("{own} names a server of yours: set {SMTP} to an MTA beside it")));
    };
    let (user, group) = dovecot::owner()?;
    let programs =
        program::folder_or_install(&["postfix", "postconf"], Vec::new, (SERVICE.name, &["postfix"], SMTP))?;
    let setting = |name: &str| {
        let text = run::read(Account::Own.command(&programs.join("postconf")).args(["-d", "-h", name]))?;
        Ok(text.trim().to_owned())
    };
    let daemons: String = setting("daemon_directory")?;
    let folder = start.folder.display();
    for name in ["config", "queue", "data"] {
        let path = start.folder.join(name);
        fs::create_dir_all(&path).or_fail(format_args!("make {}", path.display()))?;
    }
    let number = run::read(Account::Own.command(Path::new("id")).args(["-u", "postfix"]))?;
    let number: u32 = number.trim().parse().map_err(|_| Failure::new("the user postfix has no number"))?;
    let data = start.folder.join("data");
    chown(&data, Some(number), None).or_fail(format_args!("hand over {}", data.display()))?;
    certificates(&start.folder)?;

    let (smtp, submission, tls) = (free_port()?, free_port()?, free_port()?);
    let main = format!(
        "compatibility_level = 3.6\n\
         inet_interfaces = loopback-only\n\
         inet_protocols = ipv4\n\
         myhostname = mx.example.test\n\
         mydestination =\n\
         mynetworks = 127.0.0.0/8\n\
         relay_domains =\n\
         default_transport = error:5.7.1 outbound mail is off\n\
         relay_transport = error:5.7.1 outbound mail is off\n\
         alias_maps =\n\
         local_recipient_maps =\n\
         queue_directory = {folder}/queue\n\
         data_directory = {folder}/data\n\
         maillog_file = {folder}/log\n\
         maillog_file_prefixes = {folder}\n\
         virtual_mailbox_domains = example.test\n\
         virtual_mailbox_base = {mailbox}\n\
         virtual_mailbox_maps = static:Maildir/\n\
         virtual_mailbox_limit = 0\n\
         virtual_uid_maps = static:{user}\n\
         virtual_gid_maps = static:{group}\n\
         virtual_minimum_uid = 1\n\
         message_size_limit = 2000000\n\
         smtpd_tls_cert_file = {folder}/server.pem\n\
         smtpd_tls_key_file = {folder}/server.key\n\
         smtpd_tls_security_level = may\n\
         smtpd_sasl_type = dovecot\n\
         smtpd_sasl_path = inet:{sasl}\n\
         smtpd_tls_auth_only = yes\n\
         smtpd_relay_restrictions =\n\
         smtpd_recipient_restrictions = check_recipient_access {REPLIES}, reject_unauth_destination\n\
         smtpd_client_connection_count_limit = 0\n"
    );
    let master = format!(
        "127.0.0.1:{smtp} inet n - n - - smtpd\n\
         127.0.0.1:{submission} inet n - n - - smtpd\n  \
         -o smtpd_tls_security_level=encrypt\n  -o smtpd_sasl_auth_enable=yes\n  \
         -o smtpd_client_restrictions=permit_sasl_authenticated,reject\n\
         127.0.0.1:{tls} inet n - n - - smtpd\n  \
         -o smtpd_tls_wrappermode=yes\n  -o smtpd_sasl_auth_enable=yes\n  \
         -o smtpd_client_restrictions=permit_sasl_authenticated,reject\n\
         pickup unix n - n 60 1 pickup\n\
         cleanup unix n - n - 0 cleanup\n\
         qmgr unix n - n 300 1 qmgr\n\
         tlsmgr unix - - n 1000? 1 tlsmgr\n\
         rewrite unix - - n - - trivial-rewrite\n\
         bounce unix - - n - 0 bounce\n\
         defer unix - - n - 0 bounce\n\
         trace unix - - n - 0 bounce\n\
         verify unix - - n - 1 verify\n\
         flush unix n - n 1000? 0 flush\n\
         proxymap unix - - n - - proxymap\n\
         error unix - - n - - error\n\
         retry unix - - n - - error\n\
         virtual unix - n n - - virtual\n\
         anvil unix - - n - 1 anvil\n\
         postlog unix-dgram n - n - 1 postlogd\n"
    );
    let config = start.folder.join("config");
    for (name, text) in [("main.cf", main), ("master.cf", master)] {
        let path = config.join(name);
        fs::write(&path, text).or_fail(format_args!("write {}", path.display()))?;
    }
    // Makes the folders of the queue.
    run::read(Account::Own.command(&programs.join("postfix")).arg("-c").arg(&config).arg("check"))?;

    let mut command = Account::Own.command(&Path::new(&daemons).join("master"));
    // `-s` would begin a process group, which it cannot as the leader of one.
    command.arg("-c").arg(&config).arg("-d").current_dir(&start.folder);
    let log = start.folder.join("log");
    let mut child = spawn(&mut command, &log)?;
    let greets = |port: u16| TcpStream::connect(("127.0.0.1", port)).is_ok();
    wait_until(&mut child, &log, || [smtp, submission, tls].into_iter().all(greets))?;
    let (name, password) = LOGIN;
    let variables = vec![
        (SMTP, format!("127.0.0.1:{smtp}")),
        (SUBMISSION, format!("127.0.0.1:{submission}")),
        (TLS, format!("127.0.0.1:{tls}")),
        (CA, start.folder.join("ca.pem").display().to_string()),
        (USER, format!("{name} {password}")),
    ];
    Ok(Started { child, variables })
}

/// A certificate authority of its own, and a certificate for this host by it.
fn certificates(folder: &Path) -> Result {
    if folder.join("server.pem").exists() {
        return Ok(());
    }
    let extensions = folder.join("extensions");
    fs::write(&extensions, "subjectAltName=DNS:localhost,IP:127.0.0.1\nbasicConstraints=CA:FALSE\n")
        .or_fail(format_args!("write {}", extensions.display()))?;
    let key = "ec -pkeyopt ec_paramgen_curve:P-256 -nodes";
    for line in [
        format!("req -x509 -newkey {key} -days 3650 -subj /CN=test-authority -keyout ca.key -out ca.pem"),
        format!("req -new -newkey {key} -subj /CN=localhost -keyout server.key -out server.csr"),
        "x509 -req -in server.csr -CA ca.pem -CAkey ca.key -CAcreateserial -days 3650 -extfile extensions \
         -out server.pem"
            .to_owned(),
    ] {
        let mut command = Account::Own.command(Path::new("openssl"));
        run::read(command.args(line.split_ascii_whitespace()).current_dir(folder))?;
    }
    let key = folder.join("server.key");
    fs::set_permissions(&key, fs::Permissions::from_mode(0o600))
        .or_fail(format_args!("close {}", key.display()))
}
