SELECT max(version) FROM {outbox}_version
