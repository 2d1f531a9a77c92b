import { join } from "node:path"

/** The material as it is shipped. */
export const shipped = join(import.meta.dirname, "../../deploy")
