import { generateKeyPairSync } from "node:crypto"

const pairOf = (modulusLength: number) =>
  generateKeyPairSync("rsa", {
    modulusLength,
    privateKeyEncoding: { type: "pkcs8", format: "pem" },
    publicKeyEncoding: { type: "spki", format: "pem" }
  })

/** The RSA key of every service account of a test run. */
export const rsaKey = pairOf(2048)

/** An access key of AWS. */
export const accessKey = {
  accessKeyId: "AKIAFAKEFAKE23456722",
  secretAccessKey: "wJalrXUtnFEMIfake/K7MDENG+bPxRfiCYEXAMPLE",
  region: "us-east-1"
}

/** The file of a service account of Google Cloud. */
export const serviceAccount = {
  type: "service_account",
  project_id: "fake-project",
  private_key_id: "0f1e2d3c4b5a69788796a5b4c3d2e1f001234567",
  private_key: rsaKey.privateKey,
  client_email: "gateway@fake-project.iam.gserviceaccount.com",
  client_id: "100000000000000000000",
  auth_uri: "https://accounts.google.com/o/oauth2/auth",
  token_uri: "https://evil.test/token"
}
