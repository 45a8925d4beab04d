//! Emails drawn at random from what people and attackers write, read back by a parser of its own.

use mailparse::{MailAddr, MailHeaderMap, ParsedMail};
use outbox_core::Sink;
use sink_smtp::{Email, Mailbox};

use crate::scripted::{Scripted, cx, record, usual};

/// What encoders stumble over.
const PIECES: [&str; 30] = [
    " ",
    "  ",
    "a",
    "word",
    "\"",
    "\\",
    ",",
    ";",
    ":",
    "<",
    ">",
    "@",
    "(",
    ")",
    "[",
    "]",
    "'",
    "%",
    "=",
    "=?utf-8?q?=0D?=",
    "?=",
    "--",
    ".",
    "é",
    "ß",
    "日本語",
    "🎉",
    "\u{200b}",
    "Content-Type: text/html",
    "averyveryveryverylongwordwithoutanyblankinit",
];

/// Some pieces, without blanks at either end: headers do not keep those.
fn text(random: &mut fastrand::Rng, pieces_max: usize) -> String {
    let pieces = (0..random.usize(1..=pieces_max)).map(|_| PIECES[random.usize(..PIECES.len())]);
    format!("x{}x", pieces.collect::<String>())
}

fn email(random: &mut fastrand::Rng) -> Email {
    let mut email = Email::new(Mailbox::named(text(random, 8), "shop@example.com")).subject(text(random, 60));
    for n in 0..random.usize(1..30) {
        let mailbox = match random.bool() {
            true => Mailbox::named(text(random, 12), format!("r{n}@example.com")),
            false => Mailbox::from(format!("r{n}@example.com")),
        };
        email = email.to(mailbox);
    }
    let lines = (0..random.usize(1..20)).map(|_| text(random, 40));
    email = email.text(lines.collect::<Vec<_>>().join("\n"));
    if random.bool() {
        email = email.html(text(random, 200));
    }
    for n in 0..random.usize(0..3) {
        email = email.header(format!("X-Note-{n}"), text(random, 60));
    }
    for _ in 0..random.usize(0..3) {
        let content: Vec<u8> = (0..random.usize(0..2_000)).map(|_| random.u8(..)).collect();
        email = email.attach(text(random, 10).replace("=?", "="), "application/x-any", content);
    }
    email
}

fn check(email: &Email, mail: &ParsedMail<'_>) {
    let header = |name: &str| mail.headers.get_first_value(name).unwrap();
    assert_eq!(header("Subject"), email.subject);
    let mut names: Vec<String> = mail.headers.iter().map(|header| header.get_key()).collect();
    let mut expected: Vec<String> =
        ["From", "Date", "Message-ID", "To", "Subject", "MIME-Version", "Content-Type"]
            .map(str::to_owned)
            .into();
    expected.extend(email.headers.keys().cloned());
    if mail.subparts.is_empty() {
        expected.push("Content-Transfer-Encoding".to_owned());
    }
    names.sort();
    expected.sort();
    assert_eq!(names, expected);
    for (name, value) in &email.headers {
        assert_eq!(&header(name), value);
    }
    let to = mailparse::addrparse_header(mail.headers.get_first_header("To").unwrap()).unwrap();
    assert_eq!(to.len(), email.to.len());
    for (found, written) in to.iter().zip(&email.to) {
        let MailAddr::Single(found) = found else { panic!("a group: {found:?}") };
        assert_eq!((&found.addr, &found.display_name), (&written.address, &written.name));
    }
    let parts: Vec<&ParsedMail<'_>> = mail.parts().filter(|part| part.subparts.is_empty()).collect();
    let texts = 1 + usize::from(email.html.is_some());
    assert_eq!(parts.len(), texts + email.attachments.len());
    let unbroken = |text: &str| text.replace("\r\n", "\n").trim_end().to_owned();
    assert_eq!(unbroken(&parts[0].get_body().unwrap()), unbroken(email.text.as_ref().unwrap()));
    for (part, attachment) in parts[texts..].iter().zip(&email.attachments) {
        assert_eq!(part.get_body_raw().unwrap(), attachment.content.0);
        assert_eq!(part.get_content_disposition().params.get("filename"), Some(&attachment.name));
    }
}

/// K6: whatever fields hold, the mail has the headers, recipients and parts that it was given, and no other.
#[tokio::test]
async fn drawn_emails_are_read_back_as_they_were_written() {
    let server = Scripted::start(usual).await;
    let sink = server.sink();
    for seed in 0..300 {
        let email = email(&mut fastrand::Rng::with_seed(seed));
        let record = record(&email);
        sink.send(&record, &cx()).await.unwrap_or_else(|error| panic!("seed {seed}: {error}"));
        let taken = server.taken();
        let mail = mailparse::parse_mail(taken[taken.len() - 1].message.as_bytes()).unwrap();
        eprintln!("seed {seed}");
        check(&email, &mail);
    }
}
