SELECT covers, name, reason, since FROM {outbox}_pauses
