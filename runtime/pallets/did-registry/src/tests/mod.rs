mod aliases;
mod components;
mod control;
mod documents;
mod pool;
mod registration;
mod texts;
mod vectors;
