/** PostgreSQL refuses to run as root, so there it runs as nobody; otherwise as whoever runs the service. */
export const postgresUser = process.getuid?.() === 0 ? { uid: 65534, gid: 65534 } : undefined
