//! Keys and the partitions that they pick: Java's.

use outbox_core::Sink;
use sink_kafka::{KafkaConfig, KafkaSink};

use crate::{
    broker::{self, create_topic, record},
    send::CX,
};

const PARTITIONS: i32 = 7;

/// What `org.apache.kafka.common.utils.Utils.murmur2` returns for these keys, as Kafka's own `UtilsTest` lists it.
const JAVA: [(&str, i32); 6] = [
    ("21", -973_932_308),
    ("foobar", -790_332_482),
    ("a-little-bit-long-string", -985_981_536),
    ("a-little-bit-longer-string", -1_486_304_829),
    ("lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58_897_971),
    ("abc", 479_470_107),
];

/// Java's hash, written from its definition so that keys beyond the list can be checked.
fn murmur2(key: &[u8]) -> i32 {
    const M: i32 = 0x5bd1_e995;
    let length = i32::try_from(key.len()).unwrap();
    let mut hash = 0x9747_b28c_u32.cast_signed() ^ length;
    let mut words = key.chunks_exact(4);
    for word in &mut words {
        let mut k = i32::from_le_bytes(word.try_into().unwrap()).wrapping_mul(M);
        k ^= (k.cast_unsigned() >> 24).cast_signed();
        hash = hash.wrapping_mul(M) ^ k.wrapping_mul(M);
    }
    let rest = words.remainder();
    for (at, byte) in rest.iter().enumerate().rev() {
        hash ^= i32::from(*byte) << (8 * at);
    }
    if !rest.is_empty() {
        hash = hash.wrapping_mul(M);
    }
    hash ^= (hash.cast_unsigned() >> 13).cast_signed();
    hash = hash.wrapping_mul(M);
    hash ^ (hash.cast_unsigned() >> 15).cast_signed()
}

fn javas_partition(hash: i32) -> i32 {
    (hash & 0x7fff_ffff) % PARTITIONS
}

#[tokio::test]
async fn a_key_meets_the_partition_that_java_picks() {
    for (key, hash) in JAVA {
        assert_eq!(murmur2(key.as_bytes()), hash, "{key}");
    }
    let Some(brokers) = broker::brokers() else { return };
    let topic = create_topic(&brokers, "keys", PARTITIONS, &[]).await;
    let sink = KafkaSink::connect(KafkaConfig::new(&brokers).with_topic(&topic)).unwrap();
    let mut keys: Vec<_> = JAVA.iter().map(|(key, hash)| ((*key).to_owned(), *hash)).collect();
    // The empty key is hashed like any other, and so are bytes beyond ASCII.
    for key in ["", "ü", "naïve", "\u{1f980}", "a", "ab", "abcde"] {
        keys.push((key.to_owned(), murmur2(key.as_bytes())));
    }
    let mut expected = Vec::new();
    for (key, hash) in keys {
        let mut record = record("1");
        record.key = Some(key.clone());
        let receipt = sink.send(&record, &CX).await.unwrap();
        let partition = javas_partition(hash);
        assert!(
            receipt.as_str().unwrap().starts_with(&format!("{topic}[{partition}]@")),
            "{key:?}: {receipt:?} is not in {partition}"
        );
        expected.push((partition, Some(key.into_bytes()), record.id));
    }
    let mut found: Vec<_> = broker::read(&brokers, &topic)
        .await
        .into_iter()
        .map(|message| (message.partition, message.key.clone(), message.id().unwrap()))
        .collect();
    found.sort();
    expected.sort();
    assert_eq!(found, expected);
}

/// As Java's: records without a key are spread, not hashed to one place.
#[tokio::test]
async fn records_without_a_key_are_spread() {
    let Some(brokers) = broker::brokers() else { return };
    let topic = create_topic(&brokers, "spread", PARTITIONS, &[]).await;
    let config =
        KafkaConfig::new(&brokers).with_topic(&topic).with_property("sticky.partitioning.linger.ms", "0");
    let sink = KafkaSink::connect(config).unwrap();
    for _ in 0..40 {
        sink.send(&record("1"), &CX).await.unwrap();
    }
    let read = broker::read(&brokers, &topic).await;
    let partitions: std::collections::BTreeSet<_> = read.iter().map(|message| message.partition).collect();
    assert!(partitions.len() > 1, "{partitions:?}");
    assert!(read.iter().all(|message| message.key.is_none()));
}
