/** Milliseconds of a clock that nobody sets, the same in all processes of the machine. */
export const monotonicMillis = (): number => Number(process.hrtime.bigint() / 1_000_000n)
