INSERT INTO {outbox} (id, kind, destination, key, payload, payload_bytes, content_type, headers, hold_key, send_after)
SELECT n.id, n.kind, n.destination, n.key, n.payload::json, n.payload_bytes, n.content_type, n.headers::jsonb,
       n.hold_key, clock_timestamp() + n.delay_micros * interval '1 microsecond'
FROM unnest($1::uuid[], $2::text[], $3::text[], $4::text[], $5::text[], $6::bytea[], $7::text[], $8::text[],
            $9::boolean[], $10::bigint[])
     WITH ORDINALITY AS n (id, kind, destination, key, payload, payload_bytes, content_type, headers, hold_key,
                           delay_micros, place)
ORDER BY n.place
RETURNING seq, id
