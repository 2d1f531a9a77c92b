/** The version of the program. */
export const version = "1.0.0"
