import { serve } from "./app.ts"
import { store } from "./store.ts"

await serve(store)
