#!/usr/bin/env node
const [major = 0, minor = 0] = process.versions.node.split(".").map(Number)

if (major > 22 || (major === 22 && minor >= 19)) {
  // SIGHUP, which reloads the keyring, must not end the service before it listens for the signal or while it stops.
  if (process.argv.includes("serve")) process.on("SIGHUP", () => undefined)
  await import("./main.ts")
} else {
  console.error(`byok needs Node.js 22.19 or later; this is ${process.versions.node}.`)
  process.exitCode = 1
}
