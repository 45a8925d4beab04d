//! PgBouncer in transaction mode before the PostgreSQL that was started here.

use std::fs;
use std::net::TcpStream;

use rustix::process::Signal;

use super::account::Account;
use super::{Service, Start, Started, free_port, postgres, program, spawn, wait_until};
use crate::failure::{Failure, Result, While};

const URL: &str = "OUTBOX_TEST_PGBOUNCER_URL";

pub(super) const SERVICE: Service = Service {
    name: "pgbouncer",
    variables: &[URL],
    aliases: &[],
    needs: &["postgres"],
    // Ends at once; SIGINT would wait for every client to leave.
    stop: Signal::TERM,
    start,
};

fn start(start: &Start) -> Result<Started> {
    let Some(server) = start.known.get(postgres::URL).and_then(|url| postgres::port_of(url)) else {
        let own = postgres::URL;
        return Err(Failure::new(format!(
            "{own} names a server of yours: set {URL} to a PgBouncer before it"
        )));
    };
    let debian: &[&str] = &["pgbouncer"];
    let programs = program::folder_or_install(&["pgbouncer"], Vec::new, (SERVICE.name, debian, URL))?;
    let port = free_port()?;
    let settings = start.folder.join("pgbouncer.ini");
    let users = start.folder.join("users");
    let text = format!(
        "[databases]\n\
         * = host=127.0.0.1 port={server}\n\
         [pgbouncer]\n\
         listen_addr = 127.0.0.1\n\
         listen_port = {port}\n\
         unix_socket_dir =\n\
         auth_type = trust\n\
         auth_file = {}\n\
         pool_mode = transaction\n\
         default_pool_size = 20\n\
         max_client_conn = 500\n\
         ignore_startup_parameters = extra_float_digits,options\n",
        users.display()
    );
    fs::write(&settings, text).or_fail(format_args!("write {}", settings.display()))?;
    fs::write(&users, "\"postgres\" \"\"\n").or_fail(format_args!("write {}", users.display()))?;

    let mut command = Account::unprivileged()?.command(&programs.join("pgbouncer"));
    command.arg(&settings).current_dir(&start.folder);
    let log = start.folder.join("log");
    let mut child = spawn(&mut command, &log)?;
    wait_until(&mut child, &log, || TcpStream::connect(("127.0.0.1", port)).is_ok())?;
    let url = format!("postgres://postgres@127.0.0.1:{port}/postgres");
    Ok(Started { child, variables: vec![(URL, url)] })
}
