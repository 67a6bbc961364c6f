/** A lab's inner headings stand one step below its name, wherever it is shown. */
import { createContext } from "svelte";

export const [headingBelow, setHeadingBelow] = createContext<string>();
