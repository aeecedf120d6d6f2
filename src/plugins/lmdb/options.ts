/** The options of an LMDB store, with the text of each. */
import { z } from "zod";

const mebibyte = 1024 * 1024;

export const lmdbOptions = z.strictObject({
  path: z.string().min(1).describe("Directory of the store, on a local disk; created with mode 0700"),
  block_time_ms: z.int().min(10).max(3_600_000).default(6_000).describe("Milliseconds between two blocks"),
  message_ids_max: z
    .int()
    .min(1)
    .max(100_000_000)
    .default(10_000_000)
    .describe("Message ids that are held, remembered or kept at a time; about 130 bytes of memory each"),
  free_space_floor_bytes: z
    .int()
    .min(0)
    .default(128 * mebibyte)
    .describe("Below this much free space on the file system, stores are refused with 507"),
  reserve_bytes: z
    .int()
    .min(mebibyte)
    .default(32 * mebibyte)
    .describe("Disk space set aside, so that pulls and acknowledgements go on when stores are refused"),
  scrub_bytes_per_second: z
    .int()
    .min(0)
    .max(1024 * mebibyte)
    .default(mebibyte)
    .describe("Pace at which a running store reads all its records again and checks them; 0 does not"),
});

export type LmdbOptions = z.output<typeof lmdbOptions>;
