// Builds the page: one HTML file with its style and its script inside, at PAGE or the place given as an argument.
import { createHash } from "node:crypto";
import { readFile, writeFile } from "node:fs/promises";
import { fileURLToPath } from "node:url";
import { build } from "esbuild";

const here = fileURLToPath(new URL(".", import.meta.url));
const PAGE = `${here}../src/jointnmt/serving/static/page.html`;

async function bundle(entry) {
  const { outputFiles, metafile } = await build({
    entryPoints: [`${here}src/${entry}`],
    absWorkingDir: here,
    bundle: true,
    minify: true,
    charset: "utf8",
    target: ["es2022", "chrome111", "firefox113", "safari16.4"],
    metafile: true,
    write: false,
  });
  return { text: outputFiles[0].text.trim(), inputs: Object.keys(metafile.inputs) };
}

// The licences of the packages that went into the script, as they ask for.
async function licences(inputs) {
  const elsewhere = inputs.find((path) => !/^(src|node_modules)\//.test(path)); // as where node_modules is a link
  if (elsewhere) throw new Error(`no licence is known of ${elsewhere}, outside web/node_modules: npm ci --prefix web`);
  const found = inputs.flatMap((path) => path.match(/^node_modules\/((?:@[^/]+\/)?[^/]+)\//)?.[1] ?? []);
  const packages = [...new Set(found)].sort();
  const texts = packages.map(async (name) => {
    const { version } = JSON.parse(await readFile(`${here}node_modules/${name}/package.json`, "utf8"));
    const licence = await readFile(`${here}node_modules/${name}/LICENSE`, "utf8");
    return `${name} ${version}\n${licence.trim()}`;
  });
  return (await Promise.all(texts)).join("\n\n").replaceAll("--", "- -");
}

const script = await bundle("main.ts");
const style = await bundle("style.css");
const hash = createHash("sha256").update(script.text).digest("base64");
const template = await readFile(`${here}src/index.html`, "utf8");
const parts = {
  LICENCES: await licences(script.inputs),
  HASH: hash,
  STYLE: style.text.replaceAll("</", "<\\/"),
  SCRIPT: script.text,
};
if (/<\/script|<!--/i.test(script.text)) throw new Error("the script would end the element that it stands in");
await writeFile(process.argv[2] ?? PAGE, template.replace(/%([A-Z]+)%/g, (whole, name) => parts[name] ?? whole));
