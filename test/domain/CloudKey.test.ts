import { Result } from "effect"
import { decodeCloudKey, cloudDetailsOf, publicIdOf } from "../../src/domain/CloudKey.ts"
import { accessKey, rsaKey, serviceAccount } from "../support/keys/cloudKeys.ts"
import { awsAccessKey } from "../support/keys/providerKeys.ts"
import { assert, describe, it } from "../support/it.ts"

const base = { "amazon-bedrock": accessKey, "google-vertex": serviceAccount }
const visible = {
  says: "must be text of visible ASCII characters",
  accepted: ["!", "~", "a/+=~!"],
  refused: ["", "a b", " ab", "ab ", "\u00e9", "a\u007f", "ab\n", 1, null]
}
const aws = {
  says: "must be a region such as us-east-1",
  accepted: ["us-east-1", "us-gov-west-1", "eusc-de-east-1", "ab-cd-1", "abcd-abcdefghijkl-ab-abcdefghijkl-12"],
  refused: [
    ...["", "us", "us-1", "us-east", "us-east1", "us-east-", "us-east-123", "US-EAST-1", "us-East-1", "us-e-1"],
    ...["u-east-1", "abcde-east-1", "us-abcdefghijklm-1", "us-a-b-c-d-1", "us-ab-ab-ab-ab-1", "us_east_1", "us-ea.t-1"],
    ...[
      "evil.test/",
      "us-east-1.evil.test",
      "us-east-1x",
      "us-east-1\n",
      "-us-east-1",
      " us-east-1",
      "us-east-x",
      1,
      null
    ]
  ]
}
const awsId = {
  says: "must be the id of an access key: AKIA or ASIA, then 16 of A to Z and 2 to 7",
  accepted: ["AKIAABCDEFGHIJKLMNOP", "AKIAQRSTUVWXYZ234567"],
  refused: [
    ...["", "AKIA", "AKIAABCDEFGHIJKLMNO", "AKIAABCDEFGHIJKLMNOPQ", "AKIAABCDEFGHIJKLMN0P", "AKIAABCDEFGHIJKLMN1P"],
    ...[
      "akiaabcdefghijklmnop",
      "AROAABCDEFGHIJKLMNOP",
      " AKIAABCDEFGHIJKLMNOP",
      "AKIAABCDEFGHIJKLMNOP\n",
      "AKIA...MNOP"
    ],
    ...[accessKey.secretAccessKey, 1, null]
  ]
}
const google = {
  says: "must be a region such as us-central1",
  accepted: ["us", "global", "abcdefghijkl", "us-central1", "northamerica-ab12", "abcdefghijkl-abcdefghijkl12"],
  refused: [
    ...["", "u", "abcdefghijklm", "us-central", "us-c1", "us-abcdefghijklm1", "us-central123", "us-centralx", "us-1"],
    ...["us-east-1", "US", "us-Central1", "us central1", " us-central1", "us-central1\n", "us-central1-a"],
    ...["evil.test/", "us-central1.evil.test", "us-central1@", 1, null]
  ]
}
const pem = {
  says: "must be a private RSA key of 2048 to 4096 bits in PEM",
  accepted: [rsaKey.privateKey],
  refused: ["", "x-----BEGIN PRIVATE KEY-----", 1, null]
}
const project = {
  says: "must be the id of a project",
  accepted: ["a", "0", "ab", "fake-project", "example.com:fake-project-9", "a".repeat(64)],
  refused: [
    ...[
      "",
      "-a",
      "a-",
      ".a",
      "a:",
      "A",
      "aB",
      "aBc",
      "a_b",
      "a".repeat(65),
      " ab",
      "ab\n",
      "../other",
      "a/b",
      "p?x",
      1,
      null
    ]
  ]
}
const bucket = {
  says: "must be the name of a bucket",
  accepted: ["abc", "0.0", "a_b", "my_bucket.test-1", "a".repeat(222)],
  refused: [
    "",
    "a",
    "ab",
    "-ab",
    "ab-",
    "ab.",
    "_ab",
    "Abc",
    "aBc",
    "abC",
    "a/b",
    "a".repeat(223),
    " abc",
    "abc\n",
    1,
    null
  ]
}

const members: ReadonlyArray<readonly [provider: keyof typeof base, member: string, form: typeof visible]> = [
  ["amazon-bedrock", "accessKeyId", awsId],
  ["amazon-bedrock", "secretAccessKey", visible],
  ["amazon-bedrock", "sessionToken", visible],
  ["amazon-bedrock", "region", aws],
  ["google-vertex", "client_email", visible],
  ["google-vertex", "private_key_id", visible],
  ["google-vertex", "private_key", pem],
  ["google-vertex", "project_id", project],
  ["google-vertex", "region", google],
  ["google-vertex", "bucket", bucket]
]

describe("a key that signs tokens (D57)", () => {
  it.for(members)(
    "of %s is accepted only if its %s has the right form",
    ([provider, member, { accepted, refused, says }]) => {
      for (const value of accepted) {
        const key = { ...base[provider], [member]: value }
        const read = Result.getOrThrow(decodeCloudKey(provider, { ...key, more: 1 }))
        assert.deepStrictEqual(read, Result.getOrThrow(decodeCloudKey(provider, key)), "other members are ignored")
        if (member !== "private_key") assert.strictEqual(Reflect.get(read, member), value)
      }
      for (const value of refused) {
        assert.deepStrictEqual(
          decodeCloudKey(provider, { ...base[provider], [member]: value }),
          Result.fail([`${member} ${says}`])
        )
      }
    }
  )

  it.prop("of AWS is accepted in the forms that AWS issues", [awsAccessKey], ([key]) =>
    Result.isSuccess(decodeCloudKey("amazon-bedrock", key))
  )

  it.prop("of AWS is refused if its id and secret are swapped, at both members", [awsAccessKey], ([key]) => {
    const swapped = { ...key, accessKeyId: key.secretAccessKey, secretAccessKey: key.accessKeyId }
    assert.deepStrictEqual(
      decodeCloudKey("amazon-bedrock", swapped),
      Result.fail([
        `accessKeyId ${awsId.says}`,
        "secretAccessKey must not be the id of an access key: the two may be swapped"
      ])
    )
  })

  it("of AWS requires a session token with the id of a session, and accepts one with the id of a user", () => {
    const session = { ...accessKey, accessKeyId: "ASIAABCDEFGHIJKLMNOP" }
    assert.deepStrictEqual(
      decodeCloudKey("amazon-bedrock", session),
      Result.fail(["sessionToken is required with an accessKeyId that begins with ASIA"])
    )
    for (const key of [session, accessKey]) {
      assert.isTrue(Result.isSuccess(decodeCloudKey("amazon-bedrock", { ...key, sessionToken: "token" })))
    }
  })

  it.for([
    ["amazon-bedrock", ["accessKeyId", "secretAccessKey", "region"]],
    ["google-vertex", ["client_email", "private_key_id", "private_key"]]
  ] as const)("of %s requires %j, and a refusal lists every missing one", ([provider, required]) => {
    assert.deepStrictEqual(decodeCloudKey(provider, {}), Result.fail(required.map((member) => `${member} is required`)))
    for (const json of [undefined, null, [base[provider]], "text"]) {
      assert.deepStrictEqual(decodeCloudKey(provider, json), Result.fail([""]))
    }
  })

  it("has the access key id or private_key_id as public id, and region, project and bucket as cloud details", () => {
    const signing = (provider: string, json: object) => Result.getOrThrow(decodeCloudKey(provider, json))
    const aws = signing("amazon-bedrock", { ...accessKey, sessionToken: "token" })
    assert.deepStrictEqual(
      [publicIdOf(aws), cloudDetailsOf(aws)],
      [accessKey.accessKeyId, { region: accessKey.region }]
    )
    const { private_key_id, project_id } = serviceAccount
    for (const known of [
      {},
      { region: "us-east5" },
      { bucket: "a-bucket" },
      { region: "global", bucket: "a-bucket" }
    ]) {
      const google = signing("google-vertex", { ...serviceAccount, ...known })
      assert.deepStrictEqual([publicIdOf(google), cloudDetailsOf(google)], [private_key_id, { project_id, ...known }])
    }
  })
})
