/**
 * A certificate authority for tests and a certificate for `inbox.waypost.test` that it signed,
 * valid for a hundred years; further ones for nodes. The keys are public: nothing outside the tests
 * may trust them.
 */
import { writeFileSync } from "node:fs";
import { join } from "node:path";

export const testAuthority = `-----BEGIN CERTIFICATE-----
MIIBijCCATGgAwIBAgIUXLyIiPPtgU9cmLtxjBVyVzu1tv8wCgYIKoZIzj0EAwIw
GjEYMBYGA1UEAwwPV2F5cG9zdCB0ZXN0IENBMCAXDTI2MTEyMTAzMjIzOVoYDzIx
MjYxMDI4MDMyMjM5WjAaMRgwFgYDVQQDDA9XYXlwb3N0IHRlc3QgQ0EwWTATBgcq
hkjOPQIBBggqhkjOPQMBBwNCAAQY6YWyWEYHql23mYhjFoRrpr1rAz4eSAmh1mt4
Kiz1nSjdZQvbaTSMQvGvw8YMCYc400xDYJZj8S2KWlAB798xo1MwUTAdBgNVHQ4E
FgQUsw7E31m1B6J/ulA+DokLc+iK4sgwHwYDVR0jBBgwFoAUsw7E31m1B6J/ulA+
DokLc+iK4sgwDwYDVR0TAQH/BAUwAwEB/zAKBggqhkjOPQQDAgNHADBEAiAAkYf6
UlPt3kz6zc6UVXTDlNUT5urLrCsVYx5CsKA5hQIgPblOzXLU6RQbyCrHVdyn3vhS
foH7QYu+w2YBmDBSoXY=
-----END CERTIFICATE-----
`;

export const inboxCertificate = `-----BEGIN CERTIFICATE-----
MIIBsDCCAVegAwIBAgIUbbarEKRXlSwgk0syLfwJ9Uv1fIMwCgYIKoZIzj0EAwIw
GjEYMBYGA1UEAwwPV2F5cG9zdCB0ZXN0IENBMCAXDTI2MTEyMTAzMjIzOVoYDzIx
MjYxMDI4MDMyMjM5WjAdMRswGQYDVQQDDBJpbmJveC53YXlwb3N0LnRlc3QwWTAT
BgcqhkjOPQIBBggqhkjOPQMBBwNCAASnzfV3uEeIN6lrNYYNJx/VOwA9NoCiplmV
gYBaSdvcBmh4qNpCR/M+oz6ZjxgqkyzrqCXRkX0FwFt8XBLCJG7No3YwdDAdBgNV
HREEFjAUghJpbmJveC53YXlwb3N0LnRlc3QwEwYDVR0lBAwwCgYIKwYBBQUHAwEw
HQYDVR0OBBYEFGfNwJvS3IHRsO0KdmLJ73YGI1pgMB8GA1UdIwQYMBaAFLMOxN9Z
tQeif7pQPg6JC3PoiuLIMAoGCCqGSM49BAMCA0cAMEQCICRjgih8lKJM4i25G5hc
mWEqOjwiSI+M/j+o0BkuwnAQAiAwFXKZNx0oSVwyYkijVfawRNttbMRz2pOrE8ms
UBmn6A==
-----END CERTIFICATE-----
`;

export const inboxKey = `-----BEGIN PRIVATE KEY-----
MIGHAgEAMBMGByqGSM49AgEGCCqGSM49AwEHBG0wawIBAQQgxdlOu98b+lmYf4F5
SdzfZ6+PgRgQCiMXrUwNRag1Dt2hRANCAASnzfV3uEeIN6lrNYYNJx/VOwA9NoCi
plmVgYBaSdvcBmh4qNpCR/M+oz6ZjxgqkyzrqCXRkX0FwFt8XBLCJG7N
-----END PRIVATE KEY-----
`;

/**
 * Certificates of nodes on this machine (localhost, 127.0.0.1), which no one else signed, each with
 * its key.
 */
export const nodeCertificates = {
  first: {
    cert: `-----BEGIN CERTIFICATE-----
MIIBlDCCATmgAwIBAgIUNSgJfh5o82v9Pj2dSQWPLYKG6mUwCgYIKoZIzj0EAwIw
EDEOMAwGA1UEAwwFZmlyc3QwIBcNMjYxMTIyMDU1ODM3WhgPMjEyNjEwMjkwNTU4
MzdaMBAxDjAMBgNVBAMMBWZpcnN0MFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAE
r2HL7+Xg88JEfRI8zNOrtSSxv6VjPzVOXYtiL4SZquC9bRnQQOFhMI1EF9w3qN2Z
RDhmE3gU7uK6LmQ3zGEHAqNvMG0wHQYDVR0OBBYEFOZ+2bChccaRUqkPniMGKeL+
xHhbMB8GA1UdIwQYMBaAFOZ+2bChccaRUqkPniMGKeL+xHhbMA8GA1UdEwEB/wQF
MAMBAf8wGgYDVR0RBBMwEYIJbG9jYWxob3N0hwR/AAABMAoGCCqGSM49BAMCA0kA
MEYCIQDu7CIZ9u9t4BbXJc6RTZPzwSXJbI04fHmDJHefljp3OwIhAL0Xwg5eHsIX
Yaw2rVBU6dHtLH+P5NwT5poXuIsEj2R5
-----END CERTIFICATE-----
`,
    key: `-----BEGIN PRIVATE KEY-----
MIGHAgEAMBMGByqGSM49AgEGCCqGSM49AwEHBG0wawIBAQQgE9Q1uElzop6zL5e/
pNRug7FYZv6fWCu6obrPVIxIsyChRANCAASvYcvv5eDzwkR9EjzM06u1JLG/pWM/
NU5di2IvhJmq4L1tGdBA4WEwjUQX3Deo3ZlEOGYTeBTu4rouZDfMYQcC
-----END PRIVATE KEY-----
`,
  },
  second: {
    cert: `-----BEGIN CERTIFICATE-----
MIIBlDCCATugAwIBAgIUCobnUtUeVQ2+41+nmhQLTSqRHAowCgYIKoZIzj0EAwIw
ETEPMA0GA1UEAwwGc2Vjb25kMCAXDTI2MTEyMjA1NTgzN1oYDzIxMjYxMDI5MDU1
ODM3WjARMQ8wDQYDVQQDDAZzZWNvbmQwWTATBgcqhkjOPQIBBggqhkjOPQMBBwNC
AARPRL93uTifOicR7Pb1K3j1wD9x4UxWWUXxZIXJRxkfy0l9CCpHoRPV7Qop0sUx
r+9jetWG5/pfiiYkXsJtVwGFo28wbTAdBgNVHQ4EFgQUd4LNxIMDj6ce2d4eMQSt
FW/T+xgwHwYDVR0jBBgwFoAUd4LNxIMDj6ce2d4eMQStFW/T+xgwDwYDVR0TAQH/
BAUwAwEB/zAaBgNVHREEEzARgglsb2NhbGhvc3SHBH8AAAEwCgYIKoZIzj0EAwID
RwAwRAIgFW9c3foMiFw4bjiCWLQHDrkM7ScQmb+ceRHxsJ2p/WACIEt6ugvWQ/vQ
8E8jvZdA4q607YU4CTD4AE4Oo9Xj+/tM
-----END CERTIFICATE-----
`,
    key: `-----BEGIN PRIVATE KEY-----
MIGHAgEAMBMGByqGSM49AgEGCCqGSM49AwEHBG0wawIBAQQgKnFgNiKIM2VEKelS
Blb0Ch6dBtMjtW/G/VUnIVXdrhKhRANCAARPRL93uTifOicR7Pb1K3j1wD9x4UxW
WUXxZIXJRxkfy0l9CCpHoRPV7Qop0sUxr+9jetWG5/pfiiYkXsJtVwGF
-----END PRIVATE KEY-----
`,
  },
  expired: {
    cert: `-----BEGIN CERTIFICATE-----
MIIBLzCB16ADAgECAgEDMAoGCCqGSM49BAMCMBIxEDAOBgNVBAMTB2V4cGlyZWQw
HhcNMjAwMTAxMDAwMDAwWhcNMjEwMTAxMDAwMDAwWjASMRAwDgYDVQQDEwdleHBp
cmVkMFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAEcG2av/pUOH5hRFOTcYxL1NCw
PsydTN/qL6tnlankNOM60tJf2dgk/8OcwAOaEivCPUwPDo4TiEnA4pROLUiCm6Me
MBwwGgYDVR0RBBMwEYIJbG9jYWxob3N0hwR/AAABMAoGCCqGSM49BAMCA0cAMEQC
IF+mtHzJQAbhYP1V4MsbggMeTsMti35tA+YEaAQ6A+SjAiBtg8xGTN/J4nA4u7cO
oLzza2qeMpWdbOyNFgvXrMuvDw==
-----END CERTIFICATE-----
`,
    key: `-----BEGIN PRIVATE KEY-----
MIGHAgEAMBMGByqGSM49AgEGCCqGSM49AwEHBG0wawIBAQQgD1WfI3yks/Bf0xRV
nQviqebM0/98H+9zXmoNEURQ/UyhRANCAARwbZq/+lQ4fmFEU5NxjEvU0LA+zJ1M
3+ovq2eVqeQ04zrS0l/Z2CT/w5zAA5oSK8I9TA8OjhOIScDilE4tSIKb
-----END PRIVATE KEY-----
`,
  },
} as const;

/** Paths of a node's certificate and key, written into a folder. */
export function writeCertificate(
  folder: string,
  name: keyof typeof nodeCertificates,
): { readonly cert: string; readonly key: string } {
  const paths = { cert: join(folder, `${name}.pem`), key: join(folder, `${name}-key.pem`) };
  writeFileSync(paths.cert, nodeCertificates[name].cert);
  writeFileSync(paths.key, nodeCertificates[name].key);
  return paths;
}
