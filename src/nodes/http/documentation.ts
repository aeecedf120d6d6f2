/**
 * The page at `/docs`: the description of the interface as one HTML text with its own style, without
 * scripts and without anything fetched from elsewhere. It is part of the program text, so the compiled
 * executable holds it.
 * Source: rules section 9.
 */
import type { DescribedContent, DescribedOperation, InterfaceDescription } from "./openapi.ts";

export function renderDocumentation(description: InterfaceDescription): string {
  const { info, tags, paths } = description;
  const operations = Object.entries(paths).flatMap(([path, methods]) =>
    Object.entries(methods).map(([method, operation]) => ({ path, method: method.toUpperCase(), operation })),
  );
  const sections = tags.map(({ name }) => {
    const own = operations.filter(({ operation }) => operation.tags.includes(name));
    const index = own.map(
      ({ path, method, operation }) =>
        `<li><a href="#${text(operation.operationId)}"><b>${method}</b> <code>${text(path)}</code></a> ${text(operation.summary)}</li>`,
    );
    return `<h2>${text(name)}</h2><ul class="index">${index.join("")}</ul>${own.map(renderOperation).join("")}`;
  });
  return `<!doctype html><html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>${text(info.title)} ${text(info.version)}</title><style>${style}</style></head><body>
<h1>${text(info.title)} <small>${text(info.version)}</small></h1><p>${ticks(info.description)}
The same as data: <a href="/openapi.json">/openapi.json</a>. All codes: <a href="/problems">/problems</a>.
Limits of this node: <a href="/limits">/limits</a>.</p>${sections.join("")}</body></html>`;
}

type Listed = { readonly path: string; readonly method: string; readonly operation: DescribedOperation };

function renderOperation({ path, method, operation }: Listed): string {
  const parameters = operation.parameters.map(
    (one) =>
      `<tr><td><code>${text(one.name)}</code></td><td>${one.in}</td><td>${one.required ? "required" : ""}</td></tr>`,
  );
  const responses = Object.entries(operation.responses).map(
    ([status, response]) =>
      `<tr><td>${status}</td><td>${ticks(response.description)}${response["x-codes"] === undefined ? renderContent(response.content) : ""}</td></tr>`,
  );
  return `<section id="${text(operation.operationId)}"><h3><b>${method}</b> <code>${text(path)}</code></h3>
<p>${text(operation.summary)}</p>
${parameters.length === 0 ? "" : `<table>${parameters.join("")}</table>`}
${operation.requestBody === undefined ? "" : `<h4>Body</h4>${renderContent(operation.requestBody.content)}`}
<h4>Answers</h4><table>${responses.join("")}</table></section>`;
}

function renderContent(content: DescribedContent | undefined): string {
  if (content === undefined) return "";
  return Object.values(content)
    .map(({ schema, example }) => {
      const shown = example === undefined ? "" : `<pre>${text(JSON.stringify(example, null, 2))}</pre>`;
      return `${shown}<details><summary>schema</summary><pre>${text(JSON.stringify(schema, null, 2))}</pre></details>`;
    })
    .join("");
}

function text(value: string): string {
  return value.replace(/[&<>"]/g, (c) => escapes[c] as string);
}

const escapes: Readonly<Record<string, string>> = { "&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;" };

/** Text whose words in backticks become code. */
function ticks(value: string): string {
  return text(value).replace(/`([^`]*)`/g, "<code>$1</code>");
}

const style = `
body{font:16px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem;color:#1b1b1f;background:#fff}
h2{margin-top:3rem;border-bottom:2px solid #ccc}section{border-top:1px solid #ddd;margin-top:2rem}
code,pre{font:14px/1.4 ui-monospace,monospace}pre{background:#f4f4f6;padding:.7rem;overflow:auto}
table{border-collapse:collapse}td{border:1px solid #ddd;padding:.2rem .6rem;vertical-align:top}
ul.index{list-style:none;padding:0}h3 b,li b{color:#3455a4}summary{cursor:pointer;color:#3455a4}
@media(prefers-color-scheme:dark){body{color:#e4e4e8;background:#17171a}pre{background:#232328}td,section{border-color:#444}
a,h3 b,li b,summary{color:#9db4ff}}`;
